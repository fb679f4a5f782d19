"""Controllers: how much to draft, decided from the past only. `LENGTHS` registers the draft-length rules."""

LENGTHS: dict[str, str] = {
    "fixed": "localspec.control.lengths:Fixed",
    "aimd": "localspec.control.lengths:Aimd",
    "confidence": "localspec.control.lengths:Confidence",
    "entropy": "localspec.control.lengths:Entropy",
    "margin": "localspec.control.lengths:Margin",
    "adaptive": "localspec.control.lengths:Adaptive",
}
