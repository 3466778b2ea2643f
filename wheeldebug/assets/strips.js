'use strict';
// The levels are strips that begin now and extend to the right. Keys move a cursor along a strip,
// and screen readers get its cells as text.

class Strips {
	constructor(list, readout, onChoose) {
		this.list = list;
		this.readout = readout;
		this.onChoose = onChoose;
		this.rows = [];
		this.cursor = null; // {level, cell}
		list.addEventListener('pointermove', (event) => this.point(event));
		list.addEventListener('pointerdown', (event) => this.point(event));
		list.addEventListener('pointerleave', () => this.leave());
		list.addEventListener('keydown', (event) => this.key(event));
		list.addEventListener('focusin', (event) => this.enter(event));
		list.addEventListener('focusout', () => this.leave());
	}

	build(levels) {
		this.rows = levels.map((_, l) => this.row(l));
		this.list.classList.toggle('many', levels.length > 6);
		this.list.replaceChildren(...this.rows.map((row) => row.item));
		this.cursor = null;
	}

	row(l) {
		const row = { name: make('b', {}, `Level ${l}`), facts: make('span', { class: 'strip-facts' }), end: make('span'), hand: make('span', { class: 'hand-label' }) };
		row.background = svg('rect', { class: 'heat0', x: 0, y: 0, height: 1 });
		row.heat = [];
		for (let c = 1; c <= CLASSES; c++) row.heat.push(svg('path', { class: `heat${c}` }));
		row.mark = svg('rect', { class: 'cursor', y: 0, height: 1, visibility: 'hidden' });
		row.drawing = svg('svg', { preserveAspectRatio: 'none', 'aria-hidden': 'true' }, row.background, ...row.heat, row.mark);
		row.strip = make('div', {
			class: 'strip', tabindex: '0', role: 'slider', 'data-level': l, 'aria-orientation': 'horizontal', 'aria-valuemin': 0, 'aria-valuenow': 0,
			'aria-describedby': 'levels-help',
		}, row.drawing);
		row.item = make('li', {}, make('div', { class: 'strip-head' }, row.name, row.facts), row.strip,
			make('div', { class: 'axis', 'aria-hidden': 'true' }, row.hand, row.end));
		return row;
	}

	draw(wheel, heat) {
		this.wheel = wheel;
		if (this.rows.length !== wheel.levels.length) this.build(wheel.levels);
		wheel.levels.forEach((level, l) => this.drawRow(this.rows[l], level, heat));
		if (this.cursor && this.cursor.cell >= wheel.levels[this.cursor.level].cells.length) this.forget();
		else this.onChoose(this.cursor); // the same slot may have another width on another wheel
		this.show();
	}

	drawRow(row, level, heat) {
		const cells = level.cells.length, last = this.wheel.levels.length - 1;
		row.drawing.setAttribute('viewBox', `0 0 ${cells} 1`);
		row.background.setAttribute('width', cells);
		const d = Array(CLASSES).fill('');
		for (const [first, end, c] of runs(level.cells, heat)) d[c - 1] += `M${first} 0H${end}V1H${first}Z`;
		row.heat.forEach((path, k) => path.setAttribute('d', d[k]));
		const later = level.later > 0 ? `, ${full(level.later)} in later laps` : '';
		write(row.facts, `${plural(level.timers, 'timer')}${later} \u00b7 a slot is ${duration(level.slot_ns)}`);
		write(row.end, `+${duration(Math.min(LONGEST, level.slot_ns * this.wheel.wheel_size))}${level === this.wheel.levels[last] ? ', then further laps' : ''}`);
		write(row.hand, `now, slot ${level.hand}`);
		row.strip.setAttribute('aria-valuemax', cells - 1);
		row.strip.setAttribute('aria-label', `${row.name.textContent}, ${row.facts.textContent}`);
		if (!row.strip.hasAttribute('aria-valuetext') || Number(row.strip.getAttribute('aria-valuenow')) >= cells) { // a value of a larger wheel
			row.strip.setAttribute('aria-valuenow', 0);
			row.strip.setAttribute('aria-valuetext', 'now');
		}
	}

	point(event) {
		const strip = event.target.closest('.strip');
		if (!strip || !this.wheel) return;
		const box = strip.getBoundingClientRect(), level = Number(strip.dataset.level);
		this.move(level, Math.floor((event.clientX - box.left) / box.width * this.wheel.levels[level].cells.length));
	}

	enter(event) {
		const strip = event.target.closest('.strip');
		if (strip && this.wheel) this.move(Number(strip.dataset.level), Number(strip.getAttribute('aria-valuenow')));
	}

	key(event) {
		const strip = event.target.closest('.strip');
		if (!strip || !this.wheel || event.altKey || event.ctrlKey || event.metaKey) return;
		const level = Number(strip.dataset.level), cells = this.wheel.levels[level].cells, at = Number(strip.getAttribute('aria-valuenow'));
		const page = Math.max(1, cells.length >> 3);
		const to = { ArrowLeft: at - 1, ArrowDown: at - 1, ArrowRight: at + 1, ArrowUp: at + 1, PageDown: at - page, PageUp: at + page, Home: 0, End: cells.length - 1 }[event.key];
		if (to === undefined) return;
		event.preventDefault();
		this.move(level, to);
	}

	move(level, cell) {
		this.cursor = { level, cell: Math.max(0, Math.min(this.wheel.levels[level].cells.length - 1, cell)) };
		this.onChoose(this.cursor);
		this.show(true);
	}

	leave() {
		if (this.list.contains(document.activeElement)) return;
		this.forget();
		this.show();
	}

	forget() {
		this.cursor = null;
		this.onChoose(null);
	}

	// pointed moves the cursor to the cell at which the pointer on the rings points.
	pointed(at) {
		if (at && this.wheel) this.move(at.level, at.cell); else this.leave();
	}

	// show marks the cell under the cursor and describes it. A screen reader announces the text
	// when the cursor moves, and not at each update.
	show(moved = false) {
		this.rows.forEach((row, l) => {
			const here = this.cursor !== null && this.cursor.level === l;
			row.mark.setAttribute('visibility', here ? 'visible' : 'hidden');
			if (!here) return;
			const level = this.wheel.levels[l], cell = this.cursor.cell;
			row.mark.setAttribute('x', cell);
			row.mark.setAttribute('width', 1);
			const text = `${span(level, cell)}, slot ${slotNames(level, cell)}: ${plural(level.cells[cell], 'timer')}`;
			if (moved) {
				row.strip.setAttribute('aria-valuenow', cell);
				row.strip.setAttribute('aria-valuetext', text);
			}
			write(this.readout, `Level ${l}, ${text}`);
		});
		if (this.cursor === null) write(this.readout, 'Point at a slot, here or on the wheel, to see its timers.');
	}
}
