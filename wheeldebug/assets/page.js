'use strict';

class WheelPage extends Live {
	constructor() {
		super('wheel');
		this.heat = new Map(); // heat scales by the names of wheels
		this.rings = new Rings(byId('rings'), (at) => this.strips.pointed(at));
		this.strips = new Strips(byId('strips'), byId('readout'), (cursor) => this.rings.choose(cursor));
		this.pending = new LineChart(byId('chart-pending'), ['pending'], { area: true });
		this.rates = new LineChart(byId('chart-rates'), ['armed', 'fired', 'stopped'], { unit: '/s' });
		this.wakeups = new LineChart(byId('chart-wakeups'), ['wake-ups', 'timers moved'], { unit: '/s' });
		this.lateness = new LatenessChart(byId('chart-lateness'), 'timers');
		byId('slots-details').addEventListener('toggle', () => this.drawTable());
	}

	take(answer) {
		const wheel = answer.wheel;
		drawNames(byId('wheels'), answer.wheels.map((w) => ({ name: w.name, count: w.pending, label: plural(w.pending, 'pending timer') })),
			wheel ? wheel.name : this.chosen, (name) => this.choose(name));
		byId('main').hidden = !wheel;
		if (!wheel) return answer.wheels.length ? `There is no wheel \u201c${this.chosen}\u201d here. Choose another one.` : 'No wheel has been added yet.';
		this.shown = wheel;
		if (!this.heat.has(wheel.name)) this.heat.set(wheel.name, new Heat());
		this.draw(wheel, this.past(wheel), this.heat.get(wheel.name));
		return wheel.stopped ? 'This wheel was stopped. No timers are pending, and the counters show their final values.' : '';
	}

	draw(wheel, past, heat) {
		heat.adapt(wheel.levels.reduce((most, level) => Math.max(most, ...level.cells), 0));
		document.title = `${wheel.name}: ${compact(wheel.pending)} pending`;
		const query = new URLSearchParams({ format: 'json', wheel: wheel.name });
		byId('json').href = `?${query}`;
		query.set('format', 'pprof');
		byId('profile').href = `?${query}`;
		drawTiles(byId('tiles'), TILES, wheel, past);
		write(byId('wheel-options'), sayOptions(wheel));
		write(byId('beside'), sayBeside(wheel));
		drawLegend(byId('legend'), heat);
		this.rings.draw(wheel, heat);
		this.strips.draw(wheel, heat);
		this.pending.draw(past.pending());
		this.rates.draw(past.rates('armed', 'fired', 'stopped'));
		this.wakeups.draw(past.rates('wakeups', 'moved'));
		this.lateness.draw(wheel.lateness, past.recent());
		drawNext(byId('next').tBodies[0], wheel);
		this.drawTable();
	}

	// drawTable updates the table of slots if it is open.
	drawTable() {
		if (this.shown && byId('slots-details').open) drawSlots(byId('slots').tBodies[0], byId('slots-note'), this.shown);
	}
}

const page = new WheelPage();
page.ask();
