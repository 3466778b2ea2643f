'use strict';
// What the page remembers, for each wheel: the last five minutes of figures. The server remembers nothing.

const WINDOW = 300e3; // ms
const GAP = 5e3; // ms without figures that are a hole and not a line

class Past {
	constructor() { this.points = []; }

	// add takes in a look at a wheel; one that is known already, or of a process before, is seen to.
	add(wheel) {
		const at = Date.parse(wheel.taken), last = this.points[this.points.length - 1];
		if (last && at === last.at) return;
		if (last && (at < last.at || wheel.counters.armed < last.counters.armed)) this.points = [];
		this.points.push({ at, pending: wheel.pending, counters: wheel.counters });
		while (at - this.points[0].at > WINDOW) this.points.shift();
	}

	pending() { return this.points.map((p) => ({ at: p.at, values: [p.pending] })); }

	// rates are counts per second between one point and the next.
	rates(...names) {
		return this.points.slice(1).map((p, k) => {
			const before = this.points[k], seconds = (p.at - before.at) / 1000;
			return { at: p.at, values: names.map((name) => seconds * 1000 > GAP ? null : (p.counters[name] - before.counters[name]) / seconds) };
		});
	}

	// rate is the present one, or null where it is not known.
	rate(name) {
		const all = this.rates(name);
		return all.length ? all[all.length - 1].values[0] : null;
	}
}
