'use strict';
// The heat scale has eight classes of equal width on a logarithmic scale, up to the next power of
// ten. The scale shrinks only after several smaller samples, so that colours keep their meaning
// while the numbers vary.

const CLASSES = 8;
const SHRINK_AFTER = 30; // samples

class Heat {
	constructor() { this.top = 10; this.smaller = 0; }

	// adapt adapts the scale to the fullest cell of a sample and returns true if the scale has
	// changed.
	adapt(most) {
		const want = Math.max(10, 10 ** Math.ceil(Math.log10(Math.max(1, most)) - 1e-9));
		if (want >= this.top) this.smaller = 0; else this.smaller++;
		if (want > this.top || (want < this.top && this.smaller >= SHRINK_AFTER)) {
			this.top = want;
			return true;
		}
		return false;
	}

	// classOf returns the class of a cell with n timers: 0 if n is 0, otherwise 1 to CLASSES.
	classOf(n) {
		if (n <= 0) return 0;
		return Math.min(CLASSES, 1 + Math.floor(CLASSES * Math.log10(n) / Math.log10(this.top) + 1e-9));
	}

	// from returns the smallest number in a class.
	from(c) { return Math.ceil(this.top ** ((c - 1) / CLASSES) - 1e-9); }
}

// drawLegend shows each colour with the smallest number of its class. It omits empty classes, which
// occur on small scales.
function drawLegend(place, heat) {
	if (place.dataset.top === String(heat.top)) return;
	place.dataset.top = heat.top;
	const entries = [legendEntry(0, '0')];
	for (let c = 1; c <= CLASSES; c++) {
		const from = heat.from(c), to = c === CLASSES ? Infinity : heat.from(c + 1) - 1;
		if (to < from || heat.classOf(from) !== c) continue;
		entries.push(legendEntry(c, `${compact(from)}${to > from ? '+' : ''}`));
	}
	place.replaceChildren(make('span', { class: 'legend-title' }, 'Timers in a slot'), make('span', { class: 'scale' }, ...entries));
}

function legendEntry(c, text) {
	return make('span', {}, svg('svg', { viewBox: '0 0 10 10', preserveAspectRatio: 'none', 'aria-hidden': 'true' }, svg('rect', { width: 10, height: 10, class: `heat${c}` })), text);
}

// runs groups adjacent cells of one class into [first, end, class]. It omits empty cells.
function runs(cells, heat) {
	const found = [];
	for (let k = 0; k < cells.length;) {
		const c = heat.classOf(cells[k]);
		let end = k + 1;
		while (end < cells.length && heat.classOf(cells[end]) === c) end++;
		if (c > 0) found.push([k, end, c]);
		k = end;
	}
	return found;
}
