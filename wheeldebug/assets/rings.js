'use strict';
// The levels are rings around the number of pending timers. The innermost ring is the finest level,
// the hand is at the top, and time runs clockwise. Each colour of a ring is one path, so a drawing
// has a few dozen elements for any number of slots.

const INNER = 34, OUTER = 100; // inner radius of the first ring and outer radius of the last one

class Rings {
	// onPoint is called with the level and cell under the pointer, or with null if there is none.
	constructor(place, onPoint) {
		this.place = place;
		this.cells = []; // number of cells of each level
		place.addEventListener('pointermove', (event) => onPoint(this.at(event)));
		place.addEventListener('pointerdown', (event) => onPoint(this.at(event)));
		place.addEventListener('pointerleave', () => onPoint(null));
	}

	// at returns the level and cell under the pointer, or null.
	at(event) {
		const p = new DOMPoint(event.clientX, event.clientY).matrixTransform(this.place.getScreenCTM().inverse());
		const level = Math.floor((Math.hypot(p.x, p.y) - INNER) / (OUTER - INNER) * this.levels);
		if (!(level >= 0 && level < this.levels)) return null;
		const part = (Math.atan2(p.x, -p.y) / (2 * Math.PI) + 1) % 1; // fraction of a turn
		return { level, cell: Math.floor(part * this.cells[level]) };
	}

	// radii returns the inner and the outer radius of the ring of a level.
	radii(l) {
		const width = (OUTER - INNER) / this.levels;
		return [INNER + l * width + Math.min(1, width / 8), INNER + (l + 1) * width - Math.min(1, width / 8)];
	}

	build(levels) {
		this.levels = levels;
		this.place.replaceChildren(byId('rings-title'));
		this.heatOf = [];
		const names = [];
		for (let l = 0; l < levels; l++) {
			const [from, to] = this.radii(l);
			this.place.append(svg('circle', { r: (from + to) / 2, 'stroke-width': to - from, class: 'track' }));
			const paths = [];
			for (let c = 1; c <= CLASSES; c++) paths.push(svg('path', { class: `heat${c}` }));
			this.place.append(...paths);
			this.heatOf.push(paths);
			if (to - from > 7) names.push(svg('text', { x: -3, y: 2.4 - (from + to) / 2, class: 'name' }, `L${l}`));
		}
		this.total = svg('text', { y: 4, class: 'total' });
		this.chosen = svg('path', { class: 'chosen' });
		this.place.append(...names, this.chosen, svg('line', { y1: -30, y2: -104, class: 'hand' }), svg('text', { y: -107, class: 'now' }, 'now'),
			this.total, svg('text', { y: 15, class: 'small' }, 'pending'));
	}

	draw(wheel, heat) {
		if (this.levels !== wheel.levels.length) this.build(wheel.levels.length);
		this.cells = wheel.levels.map((level) => level.cells.length);
		wheel.levels.forEach((level, l) => {
			const d = Array(CLASSES).fill('');
			const [from, to] = this.radii(l);
			for (const [first, end, c] of runs(level.cells, heat)) {
				d[c - 1] += sector(from, to, first / level.cells.length, end / level.cells.length);
			}
			this.heatOf[l].forEach((path, k) => path.setAttribute('d', d[k]));
		});
		write(this.total, compact(wheel.pending));
		const parts = wheel.levels.map((level, l) => `level ${l}: ${full(level.timers)}`);
		write(byId('rings-title'), `${plural(wheel.pending, 'pending timer')} on ${plural(wheel.levels.length, 'level')}; ${parts.join(', ')}`);
	}

	// choose marks a cell and its level. A null cursor removes the mark.
	choose(cursor) {
		if (!this.levels) return;
		let d = '';
		if (cursor) {
			const [from, to] = this.radii(cursor.level), cells = this.cells[cursor.level];
			d = around(from) + around(to) + sector(from, to, cursor.cell / cells, (cursor.cell + 1) / cells);
		}
		this.chosen.setAttribute('d', d);
	}
}

// around returns the path of a circle.
function around(r) { return `M0 ${-r}A${r} ${r} 0 0 1 0 ${r}A${r} ${r} 0 0 1 0 ${-r}Z`; }

// sector returns the path of a sector of a ring. begin and end are fractions of a turn.
function sector(from, to, begin, end) {
	if (end - begin > 0.5) {
		const middle = (begin + end) / 2; // one arc cannot be a full circle
		return sector(from, to, begin, middle) + sector(from, to, middle, end);
	}
	const at = (r, part) => `${(r * Math.sin(2 * Math.PI * part)).toFixed(2)} ${(-r * Math.cos(2 * Math.PI * part)).toFixed(2)}`;
	return `M${at(from, begin)}L${at(to, begin)}A${to} ${to} 0 0 1 ${at(to, end)}L${at(from, end)}A${from} ${from} 0 0 0 ${at(from, begin)}Z`;
}
