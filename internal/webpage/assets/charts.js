'use strict';
// Charts of lines over time and of lateness. Each chart has one scale that begins at 0, and shows
// its figures as text below.

// nice returns the smallest round number that is at least v and whose half is round too.
function nice(v) {
	const unit = 10 ** Math.floor(Math.log10(Math.max(v, 1e-9)));
	for (const step of [1, 2, 3, 4, 5, 6, 8, 10]) if (step * unit >= v * (1 - 1e-9)) return step * unit;
	return v;
}

const KEYS = ['one', 'two', 'three'];

// LineChart shows up to three values over the last minutes.
class LineChart {
	constructor(place, names, { unit = '', area = false } = {}) {
		this.names = names;
		this.unit = unit;
		this.lines = names.map((_, k) => svg('path', { class: KEYS[k] }));
		this.area = area ? svg('path', { class: 'area' }) : null;
		this.plot = svg('svg', { viewBox: '0 0 100 100', preserveAspectRatio: 'none', 'aria-hidden': 'true' },
			svg('path', { class: 'grid', d: 'M0 0H100M0 50H100' }), ...(area ? [this.area] : []), ...this.lines);
		this.high = make('span', { class: 'tick-label top' });
		this.middle = make('span', { class: 'tick-label mid' });
		this.since = make('span');
		this.values = names.map((name, k) => make('span', {}, svg('svg', { viewBox: '0 0 24 8', 'aria-hidden': 'true' }, svg('path', { class: KEYS[k], d: 'M0 4H24' })), make('span')));
		this.image = make('div', { class: 'plot', role: 'img' }, this.plot, this.high, this.middle);
		place.append(this.image, make('div', { class: 'axis', 'aria-hidden': 'true' }, this.since, make('span', {}, 'now')),
			make('div', { class: 'keys' }, ...this.values));
	}

	// draw draws points {at: ms, values: [...]} in chronological order. A null value is unknown.
	draw(points) {
		const end = points.length ? points[points.length - 1].at : 0;
		const width = Math.min(WINDOW, Math.max(60e3, points.length ? end - points[0].at : 0));
		const known = points.flatMap((p) => p.values).filter((v) => v !== null);
		const high = nice(Math.max(1, ...known));
		const x = (p) => 100 - (end - p.at) / width * 100, y = (v) => 100 - v / high * 100;
		this.lines.forEach((line, k) => line.setAttribute('d', pieces(points, k).map((piece) => 'M' + trace(piece, k, x, y)).join('')));
		if (this.area) {
			this.area.setAttribute('d', pieces(points, 0).map((piece) =>
				`M${x(piece[0]).toFixed(2)} 100L${trace(piece, 0, x, y)}L${x(piece[piece.length - 1]).toFixed(2)} 100Z`).join(''));
		}
		write(this.high, compact(high) + this.unit);
		write(this.middle, compact(high / 2) + this.unit);
		write(this.since, `\u2212${duration(width * 1e6)}`);
		const said = this.names.map((name, k) => this.say(name, points, k));
		this.values.forEach((value, k) => write(value.lastChild, said[k].now));
		this.image.setAttribute('aria-label', `${said.map((s) => s.all).join('; ')}; in the last ${duration(width * 1e6)}`);
	}

	say(name, points, k) {
		const known = points.map((p) => p.values[k]).filter((v) => v !== null);
		if (known.length === 0) return { now: `${name} \u2013`, all: `${name}: no data yet` };
		const form = (v) => compact(v) + this.unit;
		const last = points[points.length - 1].values[k]; // unknown after a gap, for example if the page was hidden
		const now = `${name} ${last === null ? '\u2013' : form(last)}`;
		return { now, all: `${now}, lowest ${form(Math.min(...known))}, highest ${form(Math.max(...known))}` };
	}
}

// pieces cuts a line at gaps in the data.
function pieces(points, k) {
	const found = [];
	let piece = [], last = null;
	for (const p of points) {
		if (p.values[k] === null || (last && p.at - last.at > GAP)) {
			if (piece.length) found.push(piece);
			piece = [];
		}
		if (p.values[k] !== null) piece.push(p);
		last = p;
	}
	if (piece.length) found.push(piece);
	return found;
}

function trace(piece, k, x, y) { return piece.map((p) => `${x(p).toFixed(2)} ${y(p.values[k]).toFixed(2)}`).join('L'); }

// octaves returns the sum of the buckets for each power of two.
function octaves(lateness) {
	const found = new Map();
	for (const b of lateness.buckets) {
		const o = b.from_ns === 0 ? 7 : Math.floor(Math.log2(b.from_ns) + 1e-9);
		found.set(o, (found.get(o) || 0) + b.count);
	}
	return found;
}

// LatenessChart shows the distribution of lateness as a bar per power of two, and the one of the
// last minute as a stepped line.
class LatenessChart {
	// noun is the plural noun for what is late, such as timers.
	constructor(place, noun) {
		this.noun = noun;
		this.bars = svg('path', { class: 'bar-fill' });
		this.steps = svg('path', { class: 'two' });
		this.high = make('span', { class: 'tick-label top' });
		this.middle = make('span', { class: 'tick-label mid' });
		this.from = make('span');
		this.to = make('span');
		this.keys = make('div', { class: 'keys' });
		this.image = make('div', { class: 'plot', role: 'img' },
			svg('svg', { viewBox: '0 0 100 100', preserveAspectRatio: 'none', 'aria-hidden': 'true' }, svg('path', { class: 'grid', d: 'M0 0H100M0 50H100' }), this.bars, this.steps),
			this.high, this.middle);
		place.append(this.image, make('div', { class: 'axis', 'aria-hidden': 'true' }, this.from, this.to), this.keys);
	}

	draw(lateness, recent) {
		const all = octaves(lateness), fresh = octaves(recent || { buckets: [] });
		const least = Math.min(14, ...all.keys()), most = Math.max(least + 11, 24, ...all.keys());
		const width = 100 / (most - least + 1);
		const part = (n, of) => n / Math.max(1, of) * 100;
		const high = nice(Math.max(1, part(Math.max(0, ...all.values()), lateness.count), recent ? part(Math.max(0, ...fresh.values()), recent.count) : 0));
		const top = (percent) => (100 - Math.max(0.8, percent / high * 100)).toFixed(2);
		let d = '';
		for (const [o, n] of all) {
			d += `M${((o - least) * width + width * 0.08).toFixed(2)} 100V${top(part(n, lateness.count))}h${(width * 0.84).toFixed(2)}V100Z`;
		}
		this.bars.setAttribute('d', d);
		d = '';
		for (let o = least; fresh.size > 0 && o <= most; o++) {
			d += `${d ? 'V' : 'M0 '}${fresh.has(o) ? top(part(fresh.get(o), recent.count)) : 100}H${((o - least + 1) * width).toFixed(2)}`;
		}
		this.steps.setAttribute('d', d);
		write(this.high, `${short(high)} %`);
		write(this.middle, `${short(high / 2)} %`);
		write(this.from, least === 7 ? '0' : duration(2 ** least));
		write(this.to, duration(2 ** (most + 1)));
		const figures = lateness.count === 0 ? ['No data yet.'] : [
			`all ${compact(lateness.count)}: p50 \u2264 ${duration(lateness.p50_ns)}, p99 \u2264 ${duration(lateness.p99_ns)}, maximum ${duration(lateness.max_ns)}`,
		];
		if (lateness.count > 0 && recent) {
			figures.push(recent.count === 0 ? 'last minute: none' :
				`last minute: p50 \u2264 ${duration(quantile(recent, 0.5))}, p99 \u2264 ${duration(quantile(recent, 0.99))}`);
		}
		this.keys.replaceChildren(...figures.map((text, k) => make('span', {}, ...(lateness.count ? [swatch(k)] : []), make('span', {}, text))));
		this.image.setAttribute('aria-label', `Lateness of ${this.noun}; ${figures.join('; ')}`);
	}
}

// swatch returns the legend symbol for figure k of lateness.
function swatch(k) {
	return svg('svg', { viewBox: '0 0 24 8', 'aria-hidden': 'true' }, k === 0 ? svg('rect', { width: 24, height: 8, class: 'bar-fill' }) : svg('path', { class: 'two', d: 'M0 4H24' }));
}
