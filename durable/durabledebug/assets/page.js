'use strict';

class QueuePage extends Live {
	constructor() {
		super('queue');
		this.bands = new BandChart(byId('bands'));
		this.pending = new LineChart(byId('chart-pending'), ['pending'], { area: true });
		this.rates = new LineChart(byId('chart-rates'), ['enqueued', 'acknowledged', 'cancelled'], { unit: '/s' });
		this.trouble = new LineChart(byId('chart-trouble'), ['retried', 'dead', 'crashes'], { unit: '/s' });
		this.lateness = new LatenessChart(byId('chart-lateness'), 'messages');
		const act = (action, id) => this.act(action, id);
		this.recurring = new RecurringMessages(act);
		this.dead = new DeadLetters(act);
		byId('hold').addEventListener('click', () => {
			// The second click pauses, even if the queue was paused elsewhere after the first
			// click.
			const action = this.shown.paused && !armed.has(byId('hold')) ? 'resume' : 'pause';
			if (action === 'resume' || sure(byId('hold'), action)) this.act(action, null);
		});
		byId('partitions-details').addEventListener('toggle', () => this.drawTable());
	}

	choose(name) {
		disarm();
		write(byId('outcome'), '');
		super.choose(name);
	}

	take(answer) {
		const queue = answer.queue;
		drawNames(byId('queues'), answer.queues, queue ? queue.name : this.chosen || (answer.queues[0] || {}).name, (name) => this.choose(name));
		write(byId('footer'), `Message bodies are not shown. ${answer.actions ? 'Dead letters can be replayed and deleted here, and queues can be paused.' : 'This page is read-only.'}`);
		if (!queue) {
			// Keep the figures if the store of their queue does not answer.
			const stay = this.shown && answer.queues.some((q) => q.name === this.shown.name) && [null, this.shown.name].includes(this.chosen);
			if (!stay) {
				this.shown = null;
				byId('main').hidden = byId('hold').hidden = true;
			}
			return answer.queues.length ? `There is no queue \u201c${this.chosen}\u201d here. Choose another one.` : 'No queue has been added yet.';
		}
		byId('main').hidden = false;
		this.shown = queue;
		this.draw(queue, this.past(queue), answer.actions);
		return sayTrouble(queue);
	}

	draw(queue, past, actions) {
		document.title = `${queue.name}: ${compact(queue.pending)} pending`;
		byId('json').href = `?${new URLSearchParams({ format: 'json', queue: queue.name })}`;
		drawTiles(byId('tiles'), TILES, queue, past);
		this.bands.draw(queue.bands);
		this.pending.draw(past.pending());
		this.rates.draw(past.rates('enqueued', 'acked', 'cancelled'));
		this.trouble.draw(past.rates('retried', 'buried', 'crashed'));
		write(byId('totals'), sayTotals(queue));
		this.lateness.draw(queue.lateness, past.recent());
		drawConsumers(byId('consumers').tBodies[0], queue);
		this.recurring.draw(queue, actions);
		this.dead.draw(queue, actions);
		byId('hold').hidden = !actions;
		if (!armed.has(byId('hold'))) write(byId('hold'), queue.paused ? 'Resume queue' : 'Pause queue');
		this.drawTable();
	}

	// drawTable fills the table only while it is open.
	drawTable() {
		if (this.shown && byId('partitions-details').open) drawPartitions(byId('partitions').tBodies[0], this.shown.partitions);
	}

	// act replays or deletes one dead letter or, if id is null, the dead letters of the queue with
	// the reason on the page, or all of them. It also pauses and resumes the queue.
	async act(action, id) {
		const form = new URLSearchParams({ action, queue: this.shown.name }), reason = byId('reason').value;
		if (id !== null) form.set('id', id);
		else if (action === 'replay' || action === 'delete') form.set(reason ? 'reason' : 'all', reason || 'true');
		let text, failed = true;
		try {
			const response = await fetch('?', { method: 'POST', body: form, cache: 'no-store', signal: AbortSignal.timeout(TIMEOUT) });
			const outcome = await response.json();
			failed = !response.ok;
			text = sayOutcome(action, id, outcome);
		} catch (error) {
			text = `No answer to ${action}: ${error.message}`;
		}
		byId('outcome').dataset.failed = String(failed);
		write(byId('outcome'), text);
		if (!this.paused) this.ask();
	}
}

const page = new QueuePage();
page.ask();
