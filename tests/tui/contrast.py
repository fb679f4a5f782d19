"""The contrast of what is drawn, computed from the cells as they are sent to the terminal."""

from textual.app import App
from textual.color import Color

ENOUGH = 4.5  # WCAG AA
DRAWN = set("━─│├┤┬┴┼┌┐└┘╭╮╰╯▌▐█▁▂▃▄▅▆▇▏▎▍▊▋▉▔▕░▒▓ ▀┃⎯")  # lines and bars are no text


def contrast(one: Color, other: Color) -> float:
    """Return the ratio of WCAG 2.2: (L1 + 0.05) / (L2 + 0.05)."""
    lights = sorted((_luminance(one), _luminance(other)))
    return (lights[1] + 0.05) / (lights[0] + 0.05)


def weak_texts(app: App[int]) -> set[tuple[float, str, str, str]]:
    """Return the texts on the screen that have too little: ratio, text, and both colours, blended and dimmed."""
    weak = set()
    strips = app.screen._compositor.render_strips()
    boxes = app.screen.query(".box")  # what lies dimmed behind a question is not to be read
    if boxes:
        area = boxes.first().region
        strips = [strip.crop(area.x, area.right) for strip in strips[area.y : area.bottom]]
    for segment in (segment for strip in strips for segment in strip):
        text = "".join(char for char in segment.text if char not in DRAWN)
        style = segment.style
        if not text or style is None or style.color is None or style.bgcolor is None:
            continue
        front, back = Color.from_rich_color(style.color), Color.from_rich_color(style.bgcolor)
        if style.reverse:
            front, back = back, front
        if style.dim:
            front = front.blend(back, 0.5)
        ratio = contrast(front, back)
        if ratio < ENOUGH:
            weak.add((round(ratio, 2), text[:30], front.hex, back.hex))
    return weak


def _luminance(color: Color) -> float:
    def linear(channel: int) -> float:
        share = channel / 255
        return share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4

    return 0.2126 * linear(color.r) + 0.7152 * linear(color.g) + 0.0722 * linear(color.b)
