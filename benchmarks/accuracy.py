"""How exact the statements on real heads are: errors against stored values, simulation and closed forms, not seconds."""

from benchmarks.harness import ROOT, Measurement, in_child

SHIPPED = ROOT / "tests" / "data" / "smollm2-heads"
COVERAGE = (0.930, 0.968)  # of intervals of level 0.95


def measure(smoke: bool) -> list[Measurement]:
    """Errors of the four shipped heads, of Theorem 5.1 and Propositions B.1 and B.3, of intervals and of predictions."""
    middle, width = sum(COVERAGE) / 2, (COVERAGE[1] - COVERAGE[0]) / 2
    heads, theorem, kept, covered, predicted = (
        in_child("accuracy", name, inline=smoke, smoke=smoke).result
        for name in ("shipped", "theorem", "directions", "coverage", "prediction")
    )
    repetitions = f"of {covered.pop('repetitions')} repetitions"
    found = [
        Measurement("four heads: masses, largest error", heads["mass"], None, "", 1e-5),
        Measurement("four heads: rho, largest error", heads["rho"], None, "", 1e-5),
        Measurement("four heads: traces, largest relative error", heads["trace"], None, "", 1e-3),
        Measurement("Theorem 5.1: largest |z| of means", theorem["z"], None, "", 4, note=f"{theorem['means']} means"),
    ]
    for name, error in kept.items():
        found.append(Measurement(f"Proposition {name}, 100 layers: direction", error, None, "", 1e-10))
    for d, share in covered.items():
        off = abs(share - middle)
        found.append(Measurement(f"coverage at d = {d}: off {middle:.3f}", off, None, "", width, note=f"{share} {repetitions}"))
    for m, error in predicted.items():
        name = f"top weight at 2048 keys from 2048/{m}: error"
        found.append(Measurement(name, abs(error), None, "", 0.015, note=f"{error:+.4f}, d = 64"))
    return found


def shipped(smoke: bool) -> dict:
    """The largest errors of the four heads of SmolLM2-135M."""
    import json

    import scaling
    import toyblocks

    expected = json.loads((SHIPPED / "smollm2_heads.json").read_text())["heads"]
    worst = {"mass": 0.0, "rho": 0.0, "trace": 0.0}
    kinds = {"mass": ("sink", "diagonal", "lower_diagonal"), "rho": ("rho_X", "rho_X_WZ", "rho_X_WZA", "rho_X_WZAu"),
             "trace": ("beta_tr_bw", "tr_bww")}  # fmt: skip
    for head in toyblocks.label_heads(scaling.read_tensors(SHIPPED / "smollm2_heads.npz")).heads:
        want = expected[head.name]
        assert (head.label, head.regime) == (want["label"], want["regime"])
        for kind, names in kinds.items():
            for name in names:
                error = abs(getattr(head, name.lower()) - want[name]) / (abs(want[name]) if kind == "trace" else 1)
                worst[kind] = max(worst[kind], error)
    return worst


def theorem(smoke: bool) -> dict:
    """Means of Y_i^T Y_j over drawn tokens against (2), for random laws and W that are not symmetric."""
    import numpy as np

    from toyblocks.oversmoothing import TokenLaw, expected_product

    rng, d, tokens, draws = np.random.default_rng(0), 5, 6, 200 if smoke else 20_000
    uniform = np.tri(tokens) / np.arange(1, tokens + 1)[:, None]
    pairs = ((1, 2), (2, 5), (6, 6))
    found = []
    for _ in range(2 if smoke else 50):
        own, common, w = (rng.standard_normal((d, d)) / d**0.5 for _ in range(3))
        mean, beta, mixing = rng.standard_normal(d), rng.uniform(0.2, 3), rng.uniform()
        law = TokenLaw(beta, mean, own @ own.T, np.outer(mean, mean) + common @ common.T)
        z = mean + rng.standard_normal((draws, tokens, d)) @ own.T + rng.standard_normal((draws, 1, d)) @ common.T
        y = beta * z + ((1 - mixing) * np.eye(tokens) + mixing * uniform) @ z @ w.T
        for i, j in pairs:
            products = np.einsum("nd,nd->n", y[:, i - 1], y[:, j - 1])
            error = products.mean() - expected_product(law.traces(w), mixing, i, j)
            found.append(abs(float(error)) / (products.std() / draws**0.5))
    return {"z": max(found), "means": len(found)}


def directions(smoke: bool) -> dict:
    """How far tokens are from the directions that the propositions give them, after 100 layers."""
    import numpy as np

    from toyblocks.oversmoothing import keeping, layer, turning

    rng = np.random.default_rng(0)
    x = rng.standard_normal((7, 12))
    kept, w_vo = x, keeping(x)
    turned, target = x, x
    for _ in range(100):
        kept = layer(kept, w_vo)
        q = np.linalg.qr(rng.standard_normal((12, 12))).Q
        turned, target = layer(turned, turning(turned, q)), target @ q.T
    pairs = {"B.1": (kept, x), "B.3": (turned, target)}
    unit = {name: [each / np.linalg.norm(each, axis=1, keepdims=True) for each in pair] for name, pair in pairs.items()}
    return {name: float(np.linalg.norm(a - b, axis=1).max()) for name, (a, b) in unit.items()}


def coverage(smoke: bool) -> dict:
    """How often the interval from the 32 nearest of 448 uniform keys holds the exponent."""
    import numpy as np

    from scaling.d2q.uniform import UniformD2Q
    from scaling.tail import fit_tail

    rng, repetitions = np.random.default_rng(0), 5 if smoke else 2000
    found: dict = {"repetitions": repetitions}
    for d in (64, 256):
        spacings = np.cumsum(rng.exponential(size=(repetitions, 449)), axis=1)
        nearest = np.asarray(UniformD2Q(d).quantile(np.log(spacings[:, :32] / spacings[:, -1:])), np.float64)
        fits = [fit_tail(each[None]) for each in nearest]
        found[str(d)] = sum(fit.low <= (d - 1) / 2 <= fit.high for fit in fits) / repetitions
    return found


def prediction(smoke: bool) -> dict:
    """The mean predicted top weight of heads with 2048/m uniform keys, less the exact one at m times the keys of their rows."""
    import numpy as np

    import scaling
    from scaling.temperature.rows import late_positions

    rng, d, heads, rows = np.random.default_rng(0), 64, 2 if smoke else 100, 24
    beta, found = scaling.critical_beta(d=d, n=2048), {}
    for place, m in enumerate((2, 4, 16)):
        n = 2048 // m
        q, k = (x / np.linalg.norm(x, axis=-1, keepdims=True) for x in rng.standard_normal((2, heads, n + 1, d)))
        report = scaling.head_temperatures(scaling.read_tensors({"q": q * beta, "k": k, "scaling": np.array(1.0)}), rows=rows)
        told = [head.predictions["constant"][place].top_weight for head in report.heads if head.predictions is not None]
        exact = [scaling.expected(d, float(m * count), beta, statistics=("top_weight",))["top_weight"]
                 for count in late_positions(n + 1, 1, rows)[:: rows // 4]]  # fmt: skip
        found[str(m)] = float(np.mean(told) - np.mean(exact)) if told else float("nan")
    return found
