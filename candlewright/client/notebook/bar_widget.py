"""The widget of a progress bar, as an anywidget."""

import anywidget
import traitlets

_PAGE = """
export default {
  render({ model, el }) {
    const box = document.createElement("div");
    const bar = document.createElement("progress");
    const text = document.createElement("span");
    box.className = "candlewright-progress";
    text.setAttribute("role", "status");
    box.append(bar, " ", text);
    el.append(box);
    const paint = () => {
      const expected = model.get("expected");
      bar.setAttribute("aria-label", model.get("text"));
      text.textContent = model.get("text");
      if (expected > 0) {
        bar.max = expected;
        bar.value = model.get("done");
      } else {
        bar.removeAttribute("value");
      }
    };
    model.on("change:text", paint);
    paint();
    return () => model.off("change:text", paint);
  },
};
"""
_STYLE = """
.candlewright-progress { align-items: center; display: flex; flex-wrap: wrap; font: 13px/1.5 sans-serif; gap: 8px }
.candlewright-progress progress { width: 240px }
"""


class BarWidget(anywidget.AnyWidget):
    """`text` is sent last: the page draws when it changes."""

    done = traitlets.Int().tag(sync=True)
    expected = traitlets.Int().tag(sync=True)
    text = traitlets.Unicode().tag(sync=True)
    _esm = _PAGE
    _css = _STYLE

    def show(self, done: int, expected: int, text: str) -> None:
        with self.hold_sync():
            self.done, self.expected, self.text = done, expected, text
