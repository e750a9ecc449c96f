// The strip above the slider: what each session did, drawn on a canvas. The slider's words say the same to a reader.

/** A session as the server sends it, an array, with names. */
export function named([number, time, binds, evictions, held, admitted, waiting, stale, faults]) {
  return { number, time, binds, evictions, held, admitted, waiting, stale, faults };
}

/** Whether a session moved a pod. */
export const acted = (line) => line.binds + line.evictions + line.held > 0;

/** A canvas that shows the sessions from one number to another, and tells which one was pointed at. */
export class Strip {
  constructor(canvas, choose) {
    this.canvas = canvas;
    this.range = [1, 1];
    this.dragging = false;
    const point = (event) => choose(this.numberAt(event.offsetX));
    canvas.addEventListener("pointerdown", (event) => {
      this.dragging = true;
      canvas.setPointerCapture(event.pointerId);
      point(event);
    });
    canvas.addEventListener("pointermove", (event) => this.dragging && point(event));
    for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => (this.dragging = false));
  }

  numberAt(x) {
    const [first, last] = this.range;
    return Math.min(last, first + Math.floor((x / this.canvas.clientWidth) * (last - first + 1)));
  }

  /** Draw the lines whose numbers are in the range; those that share a column of pixels are added up. */
  draw(lines, range, selected) {
    this.range = range;
    const { canvas } = this;
    const scale = window.devicePixelRatio || 1;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    const pen = canvas.getContext("2d");
    pen.scale(scale, scale);
    const colour = colours(canvas);
    const step = width / (range[1] - range[0] + 1);
    const drawn = [lines.length, lines[0]?.number, range, width].join();
    if (drawn !== this.drawn) Object.assign(this, { drawn, columns: gathered(lines, range[0], step) });
    const { columns } = this;
    const most = [...columns.values()].reduce((top, one) => Math.max(top, one.binds + one.held, one.evictions), 1);
    const middle = height * 0.72;
    const tall = (count, room) => (count ? Math.max(2, (Math.log1p(count) / Math.log1p(most)) * room) : 0);
    const wide = Math.max(1, step > 4 ? step - 1 : step);
    for (const [x, one] of columns) {
      const bar = (top, size, ink) => {
        pen.fillStyle = ink;
        pen.fillRect(x, top, wide, size);
      };
      bar(middle - 1, 1, one.waiting ? colour.held : colour.idle);
      const all = tall(one.binds + one.held, middle - 8);
      const binds = one.binds + one.held ? (all * one.binds) / (one.binds + one.held) : 0;
      bar(middle - all, all - binds, colour.held);
      bar(middle - binds, binds, colour.bind);
      bar(middle, tall(one.evictions, height - middle), colour.evict);
      if (one.faults + one.stale) bar(0, 4, colour.fault);
    }
    const at = (selected - range[0]) * step;
    pen.fillStyle = colour.ink;
    pen.globalAlpha = 0.9;
    if (step > 4) {
      pen.strokeStyle = colour.ink;
      pen.strokeRect(at - 0.5, 0.5, wide + 1, height - 1);
    } else pen.fillRect(at - 0.5, 0, 2, height);
  }
}

function colours(canvas) {
  const style = getComputedStyle(canvas);
  const names = ["bind", "held", "evict", "fault", "idle", "ink"];
  return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`)]));
}

function gathered(lines, first, step) {
  const columns = new Map();
  for (const line of lines) {
    const x = step >= 1 ? (line.number - first) * step : Math.floor((line.number - first) * step);
    const sum = columns.get(x) ?? { binds: 0, held: 0, evictions: 0, waiting: 0, faults: 0, stale: 0 };
    for (const name of Object.keys(sum)) sum[name] += line[name];
    columns.set(x, sum);
  }
  return columns;
}
