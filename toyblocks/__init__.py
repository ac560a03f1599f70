"""Single-block transformers that switch attention off: what a sink costs, what a diagonal pattern costs.

Source of the theorems: section 7 and Appendix D of "Sink vs. diagonal patterns as mechanisms for attention switch and
oversmoothing prevention".
"""
