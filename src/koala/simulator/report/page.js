"use strict";
// Draws the run on three canvases that share one window of time. Far away, the Gantt chart shows how densely the
// processors are used; near enough, every job is a bar of its own.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const NEVER = 0xffffffff;
  const BARS_MAX = 6000; // more bars than this in view are drawn as density
  const MARGIN = { left: 84, right: 10, top: 8, bottom: 24 };
  const SITE_COLOURS = ["#3b79b8", "#e08a2e", "#4f9d69", "#b5557a", "#7a6cc4", "#3aa0a8", "#b09a2a", "#8a7466"];
  const OTHERS_COLOUR = "#8b959b";
  // From no wait to the longest of the run: told apart also by those who see colours differently.
  const RAMP = [[59, 121, 184], [74, 165, 181], [143, 185, 106], [224, 176, 64], [224, 121, 58], [194, 56, 74]];
  const LEVELS = 64;

  // ------------------------------------------------------------------------------------------- the data

  const TYPES = { 8: Uint8Array, 16: Uint16Array, 32: Uint32Array, 64: Float64Array };
  const column = (name) => {
    const packed = data.columns[name];
    if (!packed) return null;
    const text = atob(packed.data);
    const bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
    return new TYPES[packed.bits](bytes.buffer);
  };
  const ids = column("id"), size = column("size"), submit = column("submit");
  const start = column("start"), end = column("end");
  const holdJob = column("hold_job"), holdSite = column("hold_site"), holdSize = column("hold_size") || size;
  const holdFrom = column("hold_from") || start, holdTo = column("hold_to") || end;
  const jobs = size.length, holds = holdSite.length;
  const jobOf = (hold) => (holdJob ? holdJob[hold] : hold);
  const idOf = (job) => (ids ? ids[job] : job + 1);
  const unit = data.unit_s;
  const sites = data.sites;

  let last = 0;
  for (let i = 0; i < jobs; i++) {
    if (submit[i] > last) last = submit[i];
    if (end[i] !== NEVER && end[i] > last) last = end[i];
  }
  for (let i = 0; i < holds; i++) if (holdTo[i] !== NEVER && holdTo[i] > last) last = holdTo[i];
  last = Math.max(last, 1);

  const waitOf = (job) => (start[job] === NEVER ? -1 : (start[job] - submit[job]) * unit);
  let longest = 1;
  for (let i = 0; i < jobs; i++) longest = Math.max(longest, waitOf(i));
  const levelOf = (wait_s) => Math.min(LEVELS - 1, Math.floor(LEVELS * Math.log1p(wait_s) / Math.log1p(longest)));
  const mixed = Array.from({ length: LEVELS }, (_, level) => {
    const at = (level / (LEVELS - 1)) * (RAMP.length - 1);
    const low = Math.min(RAMP.length - 2, Math.floor(at));
    return [0, 1, 2].map((c) => Math.round(RAMP[low][c] + (at - low) * (RAMP[low + 1][c] - RAMP[low][c])));
  });
  const colourOf = mixed.map((c) => `rgb(${c.join(" ")})`);
  const nameColourOf = mixed.map(([r, g, b]) => (0.299 * r + 0.587 * g + 0.114 * b > 130 ? "#1d262c" : "#ffffff"));
  const level = new Uint8Array(jobs);
  for (let i = 0; i < jobs; i++) level[i] = Math.max(0, levelOf(Math.max(0, waitOf(i))));

  const orderBy = (values) => {
    const order = new Uint32Array(values.length);
    for (let i = 0; i < order.length; i++) order[i] = i;
    return order.sort((a, b) => values[a] - values[b] || a - b);
  };

  // ------------------------------------------------------------------------------------------- curves

  // A step function as its changes and its integral, so that its mean over any stretch takes two look-ups.
  class Curve {
    constructor(upAt, downAt, upBy, downBy) {
      const changes = upAt.length + downAt.length;
      this.times = new Float64Array(changes + 1);
      this.values = new Float64Array(changes + 1);
      this.sums = new Float64Array(changes + 1);
      let up = 0, down = 0, value = 0, n = 0;
      while (up < upAt.length || down < downAt.length) {
        const falls = up >= upAt.length || (down < downAt.length && downAt[down] <= upAt[up]);
        const at = falls ? downAt[down] : upAt[up];
        this.sums[n + 1] = this.sums[n] + value * (at - this.times[n]);
        value += falls ? -downBy(down++) : upBy(up++);
        this.times[++n] = at;
        this.values[n] = value;
      }
      this.length = n + 1;
    }
    // The place of the last change that is not after a time.
    place(at) {
      let low = 0, high = this.length;
      while (high - low > 1) {
        const middle = (low + high) >> 1;
        if (this.times[middle] <= at) low = middle; else high = middle;
      }
      return low;
    }
    sum(at) {
      const place = this.place(at);
      return this.sums[place] + this.values[place] * (at - this.times[place]);
    }
    at(at) { return this.values[this.place(at)]; }
    mean(from, to) { return (this.sum(to) - this.sum(from)) / (to - from); }
  }

  const gather = (values, keep) => {
    const order = orderBy(values).filter(keep);
    return { order, at: Float64Array.from(order, (i) => values[i]) };
  };
  const capacity = sites.reduce((sum, site) => sum + site.processors, 0);
  const COLOURED = Math.min(sites.length, SITE_COLOURS.length);
  const largest = sites.map((_, i) => i).sort((a, b) => sites[b].processors - sites[a].processors || a - b);
  const own = sites.length <= SITE_COLOURS.length ? sites.map((_, i) => i) : largest.slice(0, COLOURED - 1).sort((a, b) => a - b);
  const groups = own.map((site, i) => ({ name: sites[site].name, sites: [site], colour: SITE_COLOURS[i] }));
  if (own.length < sites.length) {
    const rest = sites.map((_, i) => i).filter((site) => !own.includes(site));
    groups.push({ name: `${rest.length} other sites`, sites: rest, colour: OTHERS_COLOUR });
  }
  const groupOf = new Uint16Array(sites.length);
  groups.forEach((group, g) => group.sites.forEach((site) => { groupOf[site] = g; }));
  const held = (at) => at !== NEVER;
  const froms = orderBy(holdFrom), tos = orderBy(holdTo);
  groups.forEach((group, g) => {
    const mine = (i) => groupOf[holdSite[i]] === g;
    const up = froms.filter(mine), down = tos.filter((i) => mine(i) && held(holdTo[i]));
    group.curve = new Curve(
      Float64Array.from(up, (i) => holdFrom[i]), Float64Array.from(down, (i) => holdTo[i]),
      (i) => holdSize[up[i]], (i) => holdSize[down[i]],
    );
  });
  const come = gather(submit, () => true), go = gather(start, (i) => held(start[i]));
  const queue = new Curve(come.at, go.at, () => 1, () => 1);

  // ------------------------------------------------------------------------------------------- lanes

  // Which processors of its site a hold is drawn on: the first gap that takes it whole, else the lowest that are free.
  // The scheduler does not say which they were; any choice without overlaps is as true as any other.
  const lanes = (() => {
    const hold = [], low = [], high = [];
    const free = sites.map((site) => [[0, site.processors]]);
    const taken = new Map();
    const SEARCHED = 64;
    const put = (i, from, to) => { hold.push(i); low.push(from); high.push(to); };
    const take = (site, wanted) => {
      const gaps = free[site], parts = [];
      const whole = gaps.slice(0, SEARCHED).findIndex(([from, to]) => to - from >= wanted);
      let place = Math.max(0, whole);
      while (wanted > 0 && place < gaps.length) {
        const [from, to] = gaps[place], part = Math.min(wanted, to - from);
        parts.push([from, from + part]);
        wanted -= part;
        if (from + part === to) gaps.splice(place, 1); else gaps[place][0] = from + part;
      }
      return parts;
    };
    const give = (site, [from, to]) => {
      const gaps = free[site];
      let a = 0, b = gaps.length;
      while (a < b) { const m = (a + b) >> 1; if (gaps[m][0] < from) a = m + 1; else b = m; }
      const joinsLeft = a > 0 && gaps[a - 1][1] === from, joinsRight = a < gaps.length && gaps[a][0] === to;
      if (joinsLeft && joinsRight) { gaps[a - 1][1] = gaps[a][1]; gaps.splice(a, 1); }
      else if (joinsLeft) gaps[a - 1][1] = to;
      else if (joinsRight) gaps[a][0] = from;
      else gaps.splice(a, 0, [from, to]);
    };
    let ended = 0;
    for (const i of froms) {
      if (holdFrom[i] === NEVER) continue;
      while (ended < holds && holdTo[tos[ended]] <= holdFrom[i]) {
        const gone = tos[ended++], parts = taken.get(gone);
        if (parts) { parts.forEach((part) => give(holdSite[gone], part)); taken.delete(gone); }
      }
      if (holdTo[i] <= holdFrom[i]) continue; // too short to be seen
      const parts = take(holdSite[i], holdSize[i]);
      taken.set(i, parts);
      parts.forEach(([from, to]) => put(i, from, to));
    }
    return { count: hold.length, hold: Uint32Array.from(hold), low: Float64Array.from(low), high: Float64Array.from(high) };
  })();

  // Sites stand one above the other, the first on top, with a little room between; in units of processors.
  const gap = capacity * Math.min(0.03, 0.25 / sites.length);
  let height = 0;
  const floor = sites.map((site) => { height += site.processors; const at = height; height += gap; return at; });
  height -= gap;

  // ------------------------------------------------------------------------------------------- the window

  const SPAN_MIN = Math.max(2, 1 / unit);
  const ROWS_MIN = Math.min(height, 4);
  const view = { from: 0, to: last, top: 0, bottom: height };
  const clamp = (value, low, high) => Math.max(low, Math.min(high, value));
  const look = (from, to, top = view.top, bottom = view.bottom) => {
    const span = clamp(to - from, Math.min(SPAN_MIN, last), last), rows = clamp(bottom - top, ROWS_MIN, height);
    view.from = clamp((from + to - span) / 2, 0, last - span);
    view.to = view.from + span;
    view.top = clamp((top + bottom - rows) / 2, 0, height - rows);
    view.bottom = view.top + rows;
    redraw();
  };
  const zoom = (factor, at = 0.5, rowsFactor = 1, row = 0.5) => {
    const t = view.from + at * (view.to - view.from), y = view.top + row * (view.bottom - view.top);
    look(t - (t - view.from) * factor, t + (view.to - t) * factor, y - (y - view.top) * rowsFactor, y + (view.bottom - y) * rowsFactor);
  };

  // ------------------------------------------------------------------------------------------- drawing

  const css = (name) => getComputedStyle(document.body).getPropertyValue(name);
  // light-dark() stays as it was written in a custom property; an element that wears it knows the colour.
  const wearing = document.createElement("span");
  document.body.append(wearing);
  const colour = (name) => { wearing.style.color = css(name); return getComputedStyle(wearing).color; };
  let ink = {};
  const learnColours = () => {
    for (const name of ["ink", "soft", "grid", "edge", "idle", "panel", "queue"]) ink[name] = colour(`--${name}`);
  };

  const prepared = (canvas) => {
    const ratio = window.devicePixelRatio || 1, box = canvas.getBoundingClientRect();
    const width = Math.round(box.width * ratio), tall = Math.round(box.height * ratio);
    if (canvas.width !== width || canvas.height !== tall) { canvas.width = width; canvas.height = tall; }
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, box.width, box.height);
    context.font = "12px system-ui, sans-serif";
    const plot = { x: MARGIN.left, y: MARGIN.top, w: box.width - MARGIN.left - MARGIN.right, h: box.height - MARGIN.top - MARGIN.bottom };
    return { context, plot, ratio };
  };
  const timeAt = (plot, x) => view.from + ((x - plot.x) / plot.w) * (view.to - view.from);
  const xAt = (plot, time) => plot.x + ((time - view.from) / (view.to - view.from)) * plot.w;

  const STEPS = [0.01, 0.1, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400,
    172800, 432000, 864000, 1728000, 4320000, 8640000, 17280000, 43200000, 86400000];
  const two = (n) => String(n).padStart(2, "0");
  const clock = (s, step) => {
    const days = Math.floor(s / 86400), rest = s - days * 86400;
    const h = Math.floor(rest / 3600), m = Math.floor((rest % 3600) / 60), sec = rest % 60;
    const time = step >= 60 ? `${two(h)}:${two(m)}` : `${two(h)}:${two(m)}:${two(Math.floor(sec))}${step < 1 ? (sec % 1).toFixed(2).slice(1) : ""}`;
    return step >= 86400 ? `day ${days}` : last * unit >= 86400 ? `day ${days}, ${time}` : time;
  };
  const drawTimes = ({ context, plot }) => {
    const span = (view.to - view.from) * unit;
    const room = (step) => (step / span) * plot.w - context.measureText(clock(view.to * unit, step)).width;
    const step = STEPS.find((each) => room(each) >= 28) || STEPS[STEPS.length - 1];
    context.strokeStyle = ink.grid; context.fillStyle = ink.soft; context.lineWidth = 1;
    context.textAlign = "center"; context.textBaseline = "top";
    for (let s = Math.ceil((view.from * unit) / step) * step; s <= view.to * unit; s += step) {
      const x = Math.round(xAt(plot, s / unit)) + 0.5;
      context.beginPath(); context.moveTo(x, plot.y); context.lineTo(x, plot.y + plot.h + 4); context.stroke();
      const text = clock(s, step), half = context.measureText(text).width / 2;
      context.fillText(text, clamp(x, half + 2, plot.x + plot.w + MARGIN.right - half), plot.y + plot.h + 7);
    }
  };
  const drawLevels = ({ context, plot }, most, label) => {
    context.strokeStyle = ink.grid; context.fillStyle = ink.soft; context.lineWidth = 1;
    context.textAlign = "right"; context.textBaseline = "middle";
    for (const share of [0, 0.5, 1]) {
      const y = Math.round(plot.y + plot.h * (1 - share)) + 0.5;
      context.beginPath(); context.moveTo(plot.x, y); context.lineTo(plot.x + plot.w, y); context.stroke();
      context.fillText(label(share * most), plot.x - 8, y);
    }
  };

  const canvases = { use: document.getElementById("use"), queue: document.getElementById("queue"), gantt: document.getElementById("gantt") };

  const drawUse = () => {
    const pen = prepared(canvases.use), { context, plot } = pen;
    drawTimes(pen);
    drawLevels(pen, 100, (v) => `${Math.round(v)} %`);
    const columns = Math.max(1, Math.round(plot.w)), step = (view.to - view.from) / columns;
    const heap = new Float64Array(columns);
    for (const group of groups) {
      context.fillStyle = group.colour;
      for (let c = 0; c < columns; c++) {
        const from = view.from + c * step, share = group.curve.mean(from, from + step) / capacity;
        const y = plot.y + plot.h * (1 - heap[c] - share);
        context.fillRect(plot.x + (c * plot.w) / columns, y, plot.w / columns + 0.4, plot.h * share);
        heap[c] += share;
      }
    }
  };

  const niceAbove = (value) => {
    const power = 10 ** Math.floor(Math.log10(Math.max(1, value)));
    return [1, 2, 4, 6, 8, 10].map((n) => n * power).find((n) => n >= value) || value;
  };
  const drawQueue = () => {
    const pen = prepared(canvases.queue), { context, plot } = pen;
    const columns = Math.max(1, Math.round(plot.w)), step = (view.to - view.from) / columns;
    const means = Float64Array.from({ length: columns }, (_, c) => queue.mean(view.from + c * step, view.from + (c + 1) * step));
    const most = Math.max(2, niceAbove(means.reduce((a, b) => Math.max(a, b), 0)));
    drawTimes(pen);
    drawLevels(pen, most, (v) => Math.round(v).toLocaleString("en"));
    context.fillStyle = ink.queue;
    for (let c = 0; c < columns; c++) {
      const tall = (plot.h * means[c]) / most;
      if (tall > 0) context.fillRect(plot.x + (c * plot.w) / columns, plot.y + plot.h - tall, plot.w / columns + 0.4, tall);
    }
  };

  let mode = "", bars = [];
  const yAt = (plot, row) => plot.y + ((row - view.top) / (view.bottom - view.top)) * plot.h;
  const drawGantt = () => {
    const pen = prepared(canvases.gantt), { context, plot } = pen;
    drawSites(pen);
    drawTimes(pen);
    const seen = [];
    for (let l = 0; l < lanes.count; l++) {
      const h = lanes.hold[l], site = holdSite[h];
      if (holdFrom[h] >= view.to || holdTo[h] <= view.from) continue;
      const top = floor[site] - lanes.high[l], bottom = floor[site] - lanes.low[l];
      if (top < view.bottom && bottom > view.top) seen.push(l);
    }
    context.save();
    context.beginPath(); context.rect(plot.x, plot.y, plot.w, plot.h); context.clip();
    mode = seen.length <= BARS_MAX ? "bars" : "density";
    bars = mode === "bars" ? drawBars(pen, seen) : (drawDensity(pen, seen), []);
    context.restore();
    const inView = new Set(seen.map((l) => jobOf(lanes.hold[l]))).size;
    const shown = `${inView.toLocaleString("en")} ${inView === 1 ? "job" : "jobs"} in view`;
    document.getElementById("gantt-mode").textContent = mode === "bars" ? shown : `${shown}, as density; come closer to see each`;
    canvases.gantt.dataset.mode = mode;
  };
  const drawSites = ({ context, plot }) => {
    context.textAlign = "right"; context.textBaseline = "middle";
    let free = plot.y - 1;
    sites.forEach((site, s) => {
      const top = Math.max(plot.y, yAt(plot, floor[s] - site.processors)), bottom = Math.min(plot.y + plot.h, yAt(plot, floor[s]));
      if (bottom <= top) return;
      context.fillStyle = ink.idle;
      context.fillRect(plot.x, top, plot.w, bottom - top);
      const middle = (top + bottom) / 2;
      if (middle - 7 > free) {
        context.fillStyle = ink.soft;
        let name = site.name;
        while (name.length > 3 && context.measureText(name).width > MARGIN.left - 12) name = `${name.slice(0, -2)}\u2026`;
        context.fillText(name, plot.x - 8, middle);
        free = middle + 7;
      }
    });
  };
  const boxOf = (plot, l) => {
    const h = lanes.hold[l], base = floor[holdSite[h]];
    const x = xAt(plot, holdFrom[h]), y = yAt(plot, base - lanes.high[l]);
    return { l, hold: h, x, y, w: xAt(plot, Math.min(holdTo[h], last)) - x, h: yAt(plot, base - lanes.low[l]) - y };
  };
  const drawBars = ({ context, plot }, seen) => {
    const boxes = seen.map((l) => boxOf(plot, l));
    context.textAlign = "left"; context.textBaseline = "middle";
    for (const box of boxes) {
      const job = jobOf(box.hold);
      const edge = box.h > 3 && box.w > 3 ? 0.75 : 0;
      context.fillStyle = colourOf[level[job]];
      context.fillRect(box.x, box.y, Math.max(0.7, box.w - edge), Math.max(0.5, box.h - edge));
      const left = Math.max(box.x, plot.x), room = Math.min(box.x + box.w, plot.x + plot.w) - left;
      if (box.h > 13 && room > 34) {
        const name = String(idOf(job));
        if (context.measureText(name).width < room - 10) { context.fillStyle = nameColourOf[level[job]]; context.fillText(name, left + 5, box.y + box.h / 2); }
      }
    }
    return boxes;
  };
  // How much of each pixel is used, and how long those who use it had waited.
  const drawDensity = ({ context, plot, ratio }, seen) => {
    const width = Math.max(1, Math.round(plot.w * ratio)), tall = Math.max(1, Math.round(plot.h * ratio));
    const used = new Float32Array(width * tall), waited = new Float32Array(width * tall);
    for (const l of seen) {
      const h = lanes.hold[l], base = floor[holdSite[h]], weight = level[jobOf(h)];
      const sx = width / (view.to - view.from), sy = tall / (view.bottom - view.top);
      const x0 = Math.max(0, (holdFrom[h] - view.from) * sx), x1 = Math.min(width, (Math.min(holdTo[h], last) - view.from) * sx);
      const y0 = Math.max(0, (base - lanes.high[l] - view.top) * sy), y1 = Math.min(tall, (base - lanes.low[l] - view.top) * sy);
      for (let y = Math.floor(y0); y < y1; y++) {
        const part = Math.min(y1, y + 1) - Math.max(y0, y);
        for (let x = Math.floor(x0); x < x1; x++) {
          const share = part * (Math.min(x1, x + 1) - Math.max(x0, x));
          used[y * width + x] += share;
          waited[y * width + x] += share * weight;
        }
      }
    }
    const image = context.createImageData(width, tall), pixels = image.data;
    for (let i = 0; i < used.length; i++) {
      if (used[i] <= 0) continue;
      const [r, g, b] = mixed[Math.min(LEVELS - 1, Math.round(waited[i] / used[i]))];
      pixels[4 * i] = r; pixels[4 * i + 1] = g; pixels[4 * i + 2] = b;
      pixels[4 * i + 3] = 255 * Math.min(1, used[i]);
    }
    const layer = document.createElement("canvas");
    layer.width = width; layer.height = tall;
    layer.getContext("2d").putImageData(image, 0, 0);
    context.drawImage(layer, plot.x, plot.y, plot.w, plot.h);
  };

  let asked = false;
  const redraw = () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => { asked = false; drawUse(); drawQueue(); drawGantt(); });
  };

  // ------------------------------------------------------------------------------------------- words

  const tip = document.getElementById("tip");
  const duration = (s) => {
    if (s < 60) return `${Number(s.toFixed(2))} s`;
    const w = Math.round(s);
    if (w < 3600) return `${Math.floor(w / 60)} min ${two(w % 60)} s`;
    if (w < 86400) return `${Math.floor(w / 3600)} h ${two(Math.floor((w % 3600) / 60))} min`;
    return `${Math.floor(w / 86400)} d ${two(Math.floor((w % 86400) / 3600))} h`;
  };
  const when = (time) => {
    const s = time * unit;
    const date = data.start_unix_s === null ? "" : ` (${new Date((data.start_unix_s + data.origin_s + s) * 1000).toISOString().slice(0, 16).replace("T", " ")} UTC)`;
    return clock(s, 1) + date;
  };
  const show = (event, title, lines) => {
    tip.replaceChildren(Object.assign(document.createElement("b"), { textContent: title }));
    for (const line of lines) tip.append(Object.assign(document.createElement("div"), { textContent: line }));
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = `${clamp(event.clientX + 14, 4, innerWidth - box.width - 4)}px`;
    tip.style.top = `${clamp(event.clientY + 16, 4, innerHeight - box.height - 4)}px`;
  };
  const hide = () => { tip.hidden = true; };
  const tellJob = (event, hold) => {
    const job = jobOf(hold), parts = [];
    if (holdJob) for (let i = 0; i < holds; i++) if (holdJob[i] === job) parts.push(`${holdSize[i]} on ${sites[holdSite[i]].name}`);
    const taken = `${size[job]} ${size[job] === 1 ? "processor" : "processors"}`;
    const lines = [`${taken} on ${sites[holdSite[hold]].name}`];
    if (parts.length > 1) lines[0] = `${taken}: ${parts.slice(0, 8).join(", ")}${parts.length > 8 ? ", ..." : ""}`;
    lines.push(`submitted ${when(submit[job])}`);
    if (start[job] !== NEVER) lines.push(`waited ${duration(waitOf(job))}`);
    if (start[job] !== NEVER && end[job] !== NEVER) lines.push(`ran ${duration((end[job] - start[job]) * unit)}`);
    show(event, `job ${idOf(job)}`, lines);
  };
  const tellTime = (event, time, extra = []) => {
    const lines = groups.map((group) => `${group.name}: ${group.curve.at(time)} of ${group.sites.reduce((n, s) => n + sites[s].processors, 0)} in use`);
    show(event, when(time), [...extra, ...lines, `${queue.at(time)} waiting`]);
  };

  // ------------------------------------------------------------------------------------------- hands

  const plotOf = (canvas) => {
    const box = canvas.getBoundingClientRect();
    return { box, plot: { x: MARGIN.left, y: MARGIN.top, w: box.width - MARGIN.left - MARGIN.right, h: box.height - MARGIN.top - MARGIN.bottom } };
  };
  const placeOf = (event, canvas) => {
    const { box, plot } = plotOf(canvas);
    return { plot, x: event.clientX - box.left, y: event.clientY - box.top };
  };
  const gantt = canvases.gantt;
  gantt.addEventListener("wheel", (event) => {
    event.preventDefault();
    const { plot, x, y } = placeOf(event, gantt);
    const turned = event.deltaY || event.deltaX, factor = Math.exp(clamp(turned, -240, 240) * 0.0025);
    const at = clamp((x - plot.x) / plot.w, 0, 1), row = clamp((y - plot.y) / plot.h, 0, 1);
    hide();
    if (event.shiftKey) zoom(1, at, factor, row); else zoom(factor, at);
  }, { passive: false });
  gantt.addEventListener("dblclick", (event) => {
    const { plot, x, y } = placeOf(event, gantt);
    zoom(0.25, clamp((x - plot.x) / plot.w, 0, 1), 0.5, clamp((y - plot.y) / plot.h, 0, 1));
  });
  let drag = null;
  gantt.addEventListener("pointerdown", (event) => {
    drag = { x: event.clientX, y: event.clientY, ...view };
    gantt.setPointerCapture(event.pointerId);
    gantt.classList.add("dragged");
  });
  gantt.addEventListener("pointerup", () => { drag = null; gantt.classList.remove("dragged"); });
  gantt.addEventListener("pointercancel", () => { drag = null; gantt.classList.remove("dragged"); });
  gantt.addEventListener("pointermove", (event) => {
    const { plot, x, y } = placeOf(event, gantt);
    if (drag) {
      const moved = ((event.clientX - drag.x) / plot.w) * (drag.to - drag.from);
      const rows = ((event.clientY - drag.y) / plot.h) * (drag.bottom - drag.top);
      hide();
      look(drag.from - moved, drag.to - moved, drag.top - rows, drag.bottom - rows);
      return;
    }
    if (x < plot.x || x > plot.x + plot.w || y < plot.y || y > plot.y + plot.h) { hide(); return; }
    const hit = bars.find((box) => x >= box.x && x <= box.x + Math.max(box.w, 2) && y >= box.y && y <= box.y + Math.max(box.h, 2));
    if (hit) tellJob(event, hit.hold); else tellTime(event, timeAt(plot, x));
  });
  gantt.addEventListener("pointerleave", hide);
  gantt.addEventListener("keydown", (event) => {
    const span = view.to - view.from, rows = view.bottom - view.top;
    const keys = {
      ArrowLeft: () => look(view.from - span / 4, view.to - span / 4),
      ArrowRight: () => look(view.from + span / 4, view.to + span / 4),
      ArrowUp: () => look(view.from, view.to, view.top - rows / 4, view.bottom - rows / 4),
      ArrowDown: () => look(view.from, view.to, view.top + rows / 4, view.bottom + rows / 4),
      "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2),
      "]": () => zoom(1, 0.5, 0.5), "[": () => zoom(1, 0.5, 2),
      0: () => look(0, last, 0, height),
    };
    if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
  });
  document.getElementById("in").addEventListener("click", () => zoom(0.5));
  document.getElementById("out").addEventListener("click", () => zoom(2));
  document.getElementById("all").addEventListener("click", () => look(0, last, 0, height));

  for (const canvas of [canvases.use, canvases.queue]) {
    let from = null;
    canvas.addEventListener("pointerdown", (event) => { from = placeOf(event, canvas); canvas.setPointerCapture(event.pointerId); });
    canvas.addEventListener("pointermove", (event) => {
      const { plot, x } = placeOf(event, canvas);
      if (x < plot.x || x > plot.x + plot.w) { hide(); return; }
      tellTime(event, timeAt(plot, x));
    });
    canvas.addEventListener("pointerup", (event) => {
      const { plot, x } = placeOf(event, canvas);
      if (from && Math.abs(x - from.x) > 4) {
        const [a, b] = [timeAt(plot, from.x), timeAt(plot, x)].sort((m, n) => m - n);
        look(clamp(a, 0, last), clamp(b, 0, last));
      }
      from = null;
    });
    canvas.addEventListener("pointerleave", hide);
  }
  document.querySelectorAll("button[data-row]").forEach((button) => button.addEventListener("click", () => {
    const job = Number(button.dataset.row), to = end[job] === NEVER ? last : end[job];
    const around = Math.max(SPAN_MIN, (to - submit[job]) * 0.15);
    look(submit[job] - around, to + around, 0, height);
    gantt.scrollIntoView({ block: "center", behavior: "auto" });
  }));

  // ------------------------------------------------------------------------------------------- the beginning

  const legend = document.getElementById("use-legend");
  for (const group of groups) {
    const entry = document.createElement("li"), mark = document.createElement("i");
    mark.style.background = group.colour;
    entry.append(mark, group.name);
    legend.append(entry);
  }
  document.getElementById("ramp").style.background = `linear-gradient(90deg, ${RAMP.map((c) => `rgb(${c.join(" ")})`).join(", ")})`;
  document.getElementById("ramp-end").textContent = duration(longest);
  document.querySelectorAll("i[data-wait]").forEach((bar) => {
    const place = Number(bar.dataset.wait), edges = data.wait_edges_s;
    const low = place === 0 ? 0 : edges[place - 1], high = place < edges.length ? edges[place] : edges[place - 1] * 3;
    bar.style.background = colourOf[levelOf(Math.min(longest, place === 0 ? 0 : Math.sqrt(low * high)))];
  });
  learnColours();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { learnColours(); redraw(); });
  addEventListener("resize", redraw);
  redraw();
})();
