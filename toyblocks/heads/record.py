"""What `label_heads` returns: one record a head, one a layer, and what was skipped or is to be read with care."""

import dataclasses
from typing import Any

from toyblocks.heads.label import Masses


@dataclasses.dataclass(frozen=True)
class Head:
    """One head; averages over its sequences, dimensionless unless said otherwise. None where the file lacks what it takes, of
    which the warnings tell.

    **Pattern.** `layer`, `head`, their numbers in the model; `n` positions of `sequences` sequences. `label`, see
    `toyblocks.heads.label`; `sink_token`, the position of the sink, None where the label has no sink: the first token where its
    mass suffices, else that of the largest column. `sink`, `diagonal`, `lower_diagonal` and `largest_column_mass` as in `Masses`,
    `largest_column` the position that the last is about; `masses_se`, their standard errors over sequences, None of one;
    `uniform_baseline`, the same masses of uniform attention over n tokens. `uniformity`, u(A) of (12).

    **Values.** `value_rank`, the number of singular values of V [n value_dim] above 1e-3 times the largest over min(n, value_dim)
    (Figure 12), all tokens counting; the mean over sequences, and `value_rank_smallest`, `value_rank_largest` of a sequence.

    **Theorem 5.1**, the first token left out. `regime`: "i" where beta tr(BW) > 0, "ii" where beta tr(BW) + tr(B W^T W) < 0,
    "middle" where neither holds, "constant" where W does not see the differences of tokens; `positive`, whether E Y_i^T Y_j > 0,
    as the theorem assumes; `increases_to`, the lambda up to which rho-hat rises for sure. `beta`; `beta_tr_bw` and `tr_bww`, in
    squared units of the residual stream. `rho_x`, `rho_x_wz`, `rho_x_wza`, `rho_x_wzau`: rho of X, of X + WZ, of X + W Z A^T with
    the head's attention (which sees the first token) and of X + W Z A_u^T with uniform attention over the other tokens;
    `predicted_rho_x_wz`, `predicted_rho_x_wzau`: rho-hat at lambda = 0 and 1. (Of X alone the prediction is an identity under
    RMSNorm.) `predicted_sign`: of the change from X + WZ to X + W Z A_u^T, +1 in regime i and -1 in ii under `positive`, else
    None; `measured_change`, that change in rho, and `measured_change_se`, its standard error over sequences, None of one;
    `agrees`, whether its sign is the predicted one. The theorem is about the path from no attention to uniform attention:
    attention on a sink is not on it, and `agrees` is about the path alone. Beside it `change_with_attention`, from X + WZ to
    X + W Z A^T (Figure 8), and `change_to_uniform`, from there to X + W Z A_u^T (Figure 9). `rescaled_...`: the same rho after
    the head's update times s_l of (11).
    """

    layer: int
    head: int
    n: int
    sequences: int
    label: str
    sink_token: int | None
    sink: float
    diagonal: float
    lower_diagonal: float | None
    largest_column: int
    largest_column_mass: float
    masses_se: Masses | None
    uniform_baseline: Masses
    uniformity: float
    value_rank: float | None = None
    value_rank_smallest: float | None = None
    value_rank_largest: float | None = None
    regime: str | None = None
    positive: bool | None = None
    increases_to: float | None = None
    beta: float | None = None
    beta_tr_bw: float | None = None
    tr_bww: float | None = None
    rho_x: float | None = None
    rho_x_wz: float | None = None
    rho_x_wza: float | None = None
    rho_x_wzau: float | None = None
    predicted_rho_x_wz: float | None = None
    predicted_rho_x_wzau: float | None = None
    predicted_sign: int | None = None
    measured_change: float | None = None
    measured_change_se: float | None = None
    agrees: bool | None = None
    change_with_attention: float | None = None
    change_to_uniform: float | None = None
    rescaled_rho_x_wz: float | None = None
    rescaled_rho_x_wza: float | None = None
    rescaled_rho_x_wzau: float | None = None

    @property
    def name(self) -> str:
        """L3H5."""
        return f"L{self.layer}H{self.head}"


@dataclasses.dataclass(frozen=True)
class LayerSummary:
    """One layer, for the heads that its file holds; dimensionless. None where the file lacks what it takes.

    `scaling` of the logits. `beta`, the mean of |X_i| / |Z_i|, and `beta_spread`, its standard deviation over the mean, 0 where
    X_i = beta Z_i as Theorem 5.1 assumes; `rho_x`, the average cosine similarity of X; `rescaling`, s_l of (11); the first token
    left out of all of these. `bos_cosine_smallest`, `bos_cosine_largest`: of Z_0 with the other Z_i of its sequence (Figure 1; Z
    without the learnt scale of the norm, which Figure 1 may have applied: with it the cosines differ).

    Proposition 4.1 for Z of the first sequence: `representable`, whether both half-spaces exist (None also where float64 cannot
    tell); `sink_margin` and `attending_margin`, of the half-spaces of z_0 - z_i and of z_i, 0 where there is none;
    `independent`, whether the tokens are linearly independent: then both exist whatever the tokens are, and the margins alone say
    something.
    """

    layer: int
    heads: tuple[int, ...]
    n: int
    sequences: int
    scaling: float
    beta: float | None = None
    beta_spread: float | None = None
    rho_x: float | None = None
    rescaling: float | None = None
    bos_cosine_smallest: float | None = None
    bos_cosine_largest: float | None = None
    representable: bool | None = None
    sink_margin: float | None = None
    attending_margin: float | None = None
    independent: bool | None = None


@dataclasses.dataclass(frozen=True)
class HeadReport:
    """The `heads` of all layers in order, the `layers`, and `warnings`: what is absent, and which labels and sections to
    doubt."""

    heads: tuple[Head, ...]
    layers: tuple[LayerSummary, ...]
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it: lists, dictionaries by field, numbers, text and None."""
        heads, layers = ([dataclasses.asdict(each) for each in group] for group in (self.heads, self.layers))
        layers = [{**each, "heads": list(each["heads"])} for each in layers]
        return {"heads": heads, "layers": layers, "warnings": list(self.warnings)}
