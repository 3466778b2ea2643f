'use strict';
// The textual parts of the page: the figures at the top and the tables.

const TILES = [
	['pending', 'Pending', (q) => [roomy(q.pending), q.unreadable > 0 ? `plus ${compact(q.unreadable)} unreadable` : plural(q.pending, 'message').replace(/^\S+ /, '')]],
	['due', 'Due now', (q) => [roomy(overdue(q)), q.overdue_ns > 1e9 ? `${duration(q.overdue_ns)} overdue` : overdue(q) > 0 ? 'waiting' : '']],
	['flight', 'In flight', (q) => [roomy(q.in_flight), oldestRun(q) > 6e10 ? `oldest run ${duration(oldestRun(q))}` : `${compact(q.running)} in this process`]],
	['enqueued', 'Enqueued', (q, past) => rateAndTotal(q, past, 'enqueued')],
	['acked', 'Acknowledged', (q, past) => rateAndTotal(q, past, 'acked')],
	['late', 'Lateness, p99', (q, past) => lateNow(q, past)],
	['retried', 'Retried', (q, past) => rateAndTotal(q, past, 'retried')],
	['crashed', 'Crashes', (q, past) => rateAndTotal(q, past, 'crashed')],
	['dead', 'Dead letters', (q) => [roomy(q.dead), gone(q)]],
	['consumers', 'Consumers', (q) => [roomy(q.consumers.length), q.consumers.length > 0 && q.unowned > 0 ? `${plural(q.unowned, 'partition')} without owner` : 'in all processes']],
];

// overdue returns the number of messages that are due and not in a handler, and oldestRun the time
// for which the oldest running message has been in its handler.
function overdue(q) { return q.consumers.reduce((sum, c) => sum + c.waiting, q.due); }
function oldestRun(q) { return q.consumers.reduce((most, c) => Math.max(most, c.oldest_run_ns), 0); }

// gone returns the number of messages that were lost, dropped or expired or, if there are none, the
// size of the dead letters.
function gone(q) {
	if (q.lost > 0) return `${compact(q.lost)} messages lost`;
	if (q.counters.trimmed > 0) return `${compact(q.counters.trimmed)} dropped`;
	if (q.counters.expired > 0) return `${compact(q.counters.expired)} expired`;
	return q.dead_bytes > 0 ? bytes(q.dead_bytes).join('\u00a0') : '';
}

// sayTotals returns the numbers of messages that ended without a delivery since the queue was
// created.
function sayTotals(q) {
	return `Total: ${[
		`${compact(q.counters.cancelled)} cancelled`, `${compact(q.counters.expired)} expired`, plural(q.counters.buried, 'dead letter'),
		`${compact(q.counters.trimmed)} of them dropped`, `${compact(q.lost)} lost`,
	].join(', ')}.`;
}

// sayTrouble returns why messages are not delivered, or an empty text.
function sayTrouble(q) {
	if (q.paused) return 'This queue is paused: no message begins until it is resumed.';
	if (q.consumers.length === 0 && q.due > 0) return 'Messages are due, but there is no consumer.';
	if (q.recurring.some((message) => !message.due)) return 'Crashes have stopped a recurring message.';
	return q.overdue_ns > 1e9 ? 'Messages wait for a free handler or a limit of the queue.' : '';
}

const DONE = { replay: 'replayed', delete: 'deleted', pause: 'paused', resume: 'resumed' };

// sayOutcome returns the text for the answer to an action.
function sayOutcome(action, id, outcome) {
	const done = DONE[action], fault = outcome.error ? `. ${outcome.error}` : '';
	if (id !== null) return `${outcome.error ? 'not ' : ''}${done}: \u201c${id}\u201d${fault}`;
	if (action === 'pause' || action === 'resume') return `The queue is ${outcome.error ? 'not ' : ''}${done}${fault}`;
	return `${plural(outcome.done, 'dead letter')} ${done}${fault}`;
}

// cell returns a table cell. Ids and reasons may have any writing direction, which must not affect
// other cells.
function cell(text, name) {
	return make('td', { class: name, ...(name === 'number' ? {} : { dir: 'auto' }) }, text);
}

// ranges formats ascending numbers as ranges: 0–3, 7.
function ranges(numbers) {
	const found = [];
	for (const n of numbers) {
		const last = found[found.length - 1];
		if (last && last[1] === n - 1) last[1] = n; else found.push([n, n]);
	}
	return found.map(([from, to]) => from === to ? String(from) : `${from}\u2013${to}`).join(', ');
}

function drawConsumers(body, queue) {
	const now = Date.parse(queue.now), since = (time) => (now - Date.parse(time)) * 1e6;
	const rows = queue.consumers.map((c) => make('tr', {}, cell(c.host || '\u2013', 'id'), cell(String(c.pid), ''),
		cell(`${duration(Math.max(0, since(c.last_heartbeat)))} ago${since(c.expires) > 0 ? ', expired' : ''}`, ''),
		cell(ranges(c.partitions || []) || 'none', 'parts'), cell(c.waiting > 0 ? `${full(c.waiting)}, for ${duration(c.waiting_ns)}` : '', ''),
		cell(c.oldest_run_ns > 0 ? duration(c.oldest_run_ns) : '', ''), cell(c.id, '')));
	body.replaceChildren(...(rows.length ? rows : [emptyRow(7, 'There are no consumers, so nothing is delivered.')]));
	write(byId('consumers-note'), rows.length > 0 && queue.unowned > 0 ? `${plural(queue.unowned, 'partition')} without a consumer.` : '');
}

const MOST_PARTITIONS = 256;

function drawPartitions(body, partitions) {
	body.replaceChildren(...partitions.slice(0, MOST_PARTITIONS).map((p, k) => make('tr', {},
		cell(String(k), ''), cell(full(p.pending), 'number'), cell(full(p.due), 'number'), cell(p.due > 0 ? duration(p.overdue_ns) : '', ''),
		cell(full(p.in_flight), 'number'), cell(full(p.dead), 'number'))));
}

// replaceRows makes the rows of a map the rows of a table, unless they are.
function replaceRows(body, rows) {
	const wanted = [...rows.values()];
	if (wanted.length !== body.children.length || wanted.some((row, k) => row !== body.children[k])) body.replaceChildren(...wanted);
}

// describe returns the cells with the id and the last error of a message, and failures those with
// its failed deliveries and crashes.
function describe(message) {
	const id = cell(message.id, 'id'), reason = cell(document.createTextNode(message.reason), 'reason');
	if (message.error) reason.append(make('div', { class: 'headers' }, message.error));
	if (message.expire_at) id.append(make('div', { class: 'headers' }, `expires ${message.expire_at}`));
	for (const [name, value] of Object.entries(message.headers || {})) id.append(make('div', { class: 'headers' }, `${name}: ${value}`));
	return [id, reason];
}

function failures(message) {
	return [cell(`${full(message.attempts)} of ${full(message.max_attempts)}`, 'number'), cell(full(message.crashes), 'number')];
}

// RecurringMessages is the table of recurring messages. A click on Resume calls act('replay', id).
class RecurringMessages {
	constructor(act) {
		this.act = act;
		this.body = byId('recurring').querySelector('tbody');
		this.rows = new Map(); // by the content of the message
	}

	// draw keeps existing rows, so that focus and selection are preserved.
	draw(queue, actions) {
		const now = Date.parse(queue.now), listed = queue.recurring;
		write(byId('recurring-note'), [
			listed.length < queue.recurring_found ? `Showing ${full(listed.length)} of ${full(queue.recurring_found)}, those that have stopped or run next.` : '',
			queue.searched_all ? '' : `Found in the first ${plural(queue.searched, 'message')}; the others were not searched.`,
		].join(' ').trim());
		byId('recurring').hidden = listed.length === 0 && queue.searched_all;
		const rows = new Map();
		for (const message of listed) {
			const key = JSON.stringify([queue.name, message, actions]);
			const row = this.rows.get(key) || this.row(message, actions);
			write(row.cells[2].firstChild, nextRun(message, now));
			rows.set(key, row);
		}
		replaceRows(this.body, rows);
		this.rows = rows;
	}

	row(message, actions) {
		const [id, reason] = describe(message), buttons = cell('', '');
		if (actions && !message.due) {
			const button = make('button', { type: 'button', 'aria-label': `Resume ${message.id}` }, 'Resume');
			button.addEventListener('click', () => this.act('replay', message.id));
			buttons.append(button);
		}
		const next = make('td', {}, make('div'), make('div', { class: 'when' }, (message.due || '').replace(/\.\d+/, '')));
		return make('tr', {}, id, cell(message.repeat, 'id'), next, reason, ...failures(message), buttons);
	}
}

// nextRun returns when a recurring message runs next.
function nextRun(message, now) {
	if (!message.due) return 'stopped by crashes';
	const wait = Date.parse(message.due) - now;
	return message.running ? 'running' : wait > 0 ? `in ${duration(wait * 1e6)}` : 'due';
}

// DeadLetters is the table of dead letters with its buttons. A click calls act(action, id); id is
// null for all dead letters.
class DeadLetters {
	constructor(act) {
		this.act = act;
		this.body = byId('dead').tBodies[0];
		this.rows = new Map(); // by id and time of death
		byId('reason').addEventListener('input', () => { disarm(); this.filter(); });
		for (const action of ['replay', 'delete']) {
			const button = byId(`${action}-all`);
			button.addEventListener('click', () => { if (sure(button, action)) act(action, null); });
		}
	}

	// draw keeps existing rows, so that focus and selection are preserved.
	draw(queue, actions) {
		const now = Date.parse(queue.now), letters = queue.dead_letters;
		write(byId('dead-note'), letters.length === 0 ? 'There are none.' : letters.length < queue.dead ?
			`Showing ${full(letters.length)} of ${full(queue.dead)}, one partition after another, the oldest first.` : '');
		byId('dead-all').hidden = !actions || queue.dead === 0;
		const rows = new Map();
		for (const letter of letters) {
			const key = JSON.stringify([queue.name, letter.id, letter.died, actions]);
			const row = this.rows.get(key) || this.row(letter, actions);
			write(row.cells[4], `${duration(Math.max(0, (now - Date.parse(letter.died)) * 1e6))} ago`);
			rows.set(key, row);
		}
		replaceRows(this.body, rows);
		this.rows = rows;
		this.filter();
	}

	// filter shows the dead letters whose reason contains the text. The buttons for all dead
	// letters apply to these.
	filter() {
		const text = byId('reason').value;
		for (const row of this.body.children) row.hidden = !row.cells[1].firstChild.data.includes(text);
		for (const [id, name] of [['replay-all', 'Replay all'], ['delete-all', 'Delete all']]) {
			if (!armed.has(byId(id))) write(byId(id), text ? `${name} with this reason` : name);
		}
	}

	row(letter, actions) {
		const [id, reason] = describe(letter), buttons = cell('', '');
		for (const [action, text] of actions ? [['replay', 'Replay'], ['delete', 'Delete']] : []) {
			const button = make('button', { type: 'button', 'aria-label': `${text} ${letter.id}` }, text);
			button.addEventListener('click', () => { if (action === 'replay' || sure(button, action)) this.act(action, letter.id); });
			buttons.append(button);
		}
		return make('tr', {}, id, reason, ...failures(letter), make('td', { title: letter.died }), cell(full(letter.bytes), 'number'), buttons);
	}
}

const SURE = 4000; // ms in which the second click must follow
const armed = new Map(); // buttons that wait for a second click, with the function that ends the wait

// sure reports whether a button was clicked for the second time. Actions that affect many messages
// or destroy data need two clicks.
function sure(button, action) {
	if (armed.has(button)) {
		armed.get(button)();
		return true;
	}
	const text = button.textContent;
	const timer = setTimeout(() => armed.get(button)(), SURE);
	armed.set(button, () => {
		clearTimeout(timer);
		armed.delete(button);
		button.classList.remove('sure');
		button.textContent = text;
	});
	button.classList.add('sure');
	button.textContent = `Click again to ${action}`;
	return false;
}

// disarm makes all buttons require two clicks again.
function disarm() { for (const end of [...armed.values()]) end(); }
