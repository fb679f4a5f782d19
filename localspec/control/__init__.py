"""Controllers: how much to draft, decided from the past only. `LENGTHS` registers the draft-length rules."""

LENGTHS: dict[str, str] = {
    "fixed": "localspec.control.fixed:Fixed",
    "aimd": "localspec.control.aimd:Aimd",
    "confidence": "localspec.control.gates:Confidence",
    "entropy": "localspec.control.gates:Entropy",
    "margin": "localspec.control.gates:Margin",
    "adaptive": "localspec.control.adaptive:Adaptive",
}
