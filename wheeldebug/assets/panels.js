'use strict';
// The textual parts of the page: the figures at the top, the tables, and notes about a wheel.

const TILES = [
	['pending', 'Pending', (w) => [roomy(w.pending), w.pending === 1 ? 'timer' : 'timers']],
	['due', 'Due now', (w) => [roomy(w.due), waiting(w)]],
	['armed', 'Armed', (w, past) => rateAndTotal(w, past, 'armed')],
	['fired', 'Fired', (w, past) => fired(w, past)],
	['stopped', 'Stopped', (w, past) => rateAndTotal(w, past, 'stopped')],
	['postponed', 'Postponed', (w, past) => rateAndTotal(w, past, 'postponed')],
	['wakeups', 'Wake-ups', (w, past) => rateAndTotal(w, past, 'wakeups')],
	['late', 'Lateness, p99', (w, past) => lateNow(w, past)],
	['running', 'Running', (w) => [roomy(w.running), running(w)]],
	['memory', 'Memory', (w) => bytes(w.bytes)],
];

// waiting, fired and running add failures to the figures that they concern.
function waiting(wheel) {
	if (wheel.overdue_ns > 1e9) return `${duration(wheel.overdue_ns)} overdue`;
	return wheel.due > 0 ? 'waiting' : '';
}

function fired(wheel, past) {
	const [rate, total] = rateAndTotal(wheel, past, 'fired');
	return [rate, wheel.counters.panics > 0 ? plural(wheel.counters.panics, 'panic') : total];
}

function running(wheel) {
	if (wheel.expired > 0) return `${compact(wheel.expired)} expired, not reported`;
	return wheel.running === 1 ? 'callback' : 'callbacks';
}

function drawNext(body, wheel) {
	const rows = wheel.next.map((x) => row(x.in_ns <= 0 ? 'now' : duration(x.in_ns), clockTime(x.at), x.level, x.timers, then(x.level, wheel.levels.length - 1)));
	body.replaceChildren(...(rows.length ? rows : [emptyRow(5, 'No timers are pending.')]));
}

// then describes what happens to timers when their bucket expires.
function then(level, last) {
	if (level === 0) return 'run';
	return `move to level ${level - 1}${level > 1 ? ' or finer' : ''}${level === last ? ', or wait another lap' : ''}`;
}

const TABLE_ROWS = 200;

function drawSlots(body, note, wheel) {
	const rows = [];
	let more = 0;
	wheel.levels.forEach((level, l) => level.cells.forEach((n, cell) => {
		if (n === 0) return;
		if (rows.length < TABLE_ROWS) rows.push(row(`${l}`, slotNames(level, cell), span(level, cell), n, null)); else more++;
	}));
	body.replaceChildren(...(rows.length ? rows : [emptyRow(4, 'All slots are empty.')]));
	write(note, more > 0 ? `${plural(more, 'more slot')} with timers; the JSON lists all of them.` : '');
}

// row returns a table row with the number of timers in the fourth cell.
function row(a, b, c, timers, e) {
	const cells = [a, b, c].map((text) => make('td', {}, String(text)));
	cells.push(make('td', { class: 'number' }, full(timers)));
	if (e !== null) cells.push(make('td', {}, e));
	return make('tr', {}, ...cells);
}

function sayOptions(wheel) {
	return `${plural(wheel.wheel_size, 'slot')} on each of ${plural(wheel.levels.length, 'level')}, ticks of ${duration(wheel.tick_ns)}, ${plural(wheel.shards, 'shard')}`;
}

// sayBeside describes the timers that are on no level.
function sayBeside(wheel) {
	const parts = [];
	if (wheel.due > 0) parts.push(`${full(wheel.due)} due and not started`);
	if (wheel.moving > 0) parts.push(`${full(wheel.moving)} moving to a finer level`);
	if (wheel.unseen > 0) parts.push(`${full(wheel.unseen)} not read, or moved during the read`);
	return parts.length ? `Timers on no level: ${parts.join('; ')}.` : '';
}

// span returns the range of times of a cell, relative to now.
function span(level, cell) {
	const ns = level.slot_ns * level.slots_per_cell;
	return `${cell === 0 ? 'now' : '+' + duration(cell * ns)} to +${duration((cell + 1) * ns)}`;
}

// slotNames returns the numbers of the slots of a cell.
function slotNames(level, cell) {
	const size = level.cells.length * level.slots_per_cell;
	const first = (level.hand + cell * level.slots_per_cell) % size;
	return level.slots_per_cell === 1 ? String(first) : `${first}\u2013${(first + level.slots_per_cell - 1) % size}`;
}
