'use strict';
// What the page remembers, for each wheel: the last five minutes of figures. The server remembers nothing.

const WINDOW = 300e3; // ms
const RECENT = 60e3; // ms of what is called recent
const GAP = 15e3; // ms without figures that are a hole and not a line

class Past {
	constructor() { this.points = []; }

	// add takes in a look at a wheel; one that is known already, or of another process or wheel before, is seen to.
	add(wheel) {
		const at = Date.parse(wheel.taken), last = this.points[this.points.length - 1];
		if (last && at === last.at) return;
		if (last && (at < last.at || Object.keys(wheel.counters).some((name) => wheel.counters[name] < last.counters[name]))) this.points = [];
		this.points.push({ at, pending: wheel.pending, counters: wheel.counters, lateness: wheel.lateness });
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

	// recent is the lateness of the last minute or, at first, since the page looks at the wheel; null where nothing is known of that.
	recent() {
		const last = this.points[this.points.length - 1];
		const first = this.points.find((p) => last.at - p.at <= RECENT);
		if (!last || first === last) return null;
		const before = new Map(first.lateness.buckets.map((b) => [b.from_ns, b.count]));
		const buckets = last.lateness.buckets.map((b) => ({ ...b, count: b.count - (before.get(b.from_ns) || 0) })).filter((b) => b.count > 0);
		return { buckets, count: buckets.reduce((sum, b) => sum + b.count, 0), max_ns: last.lateness.max_ns };
	}

	// rate is the present one, or null where it is not known.
	rate(name) {
		const all = this.rates(name);
		return all.length ? all[all.length - 1].values[0] : null;
	}
}

// quantile is an upper bound of the lateness of a part of all, as far as buckets tell. The last one has no bound but the largest of all.
function quantile(lateness, part) {
	let left = Math.ceil(lateness.count * part);
	for (const b of lateness.buckets) if ((left -= b.count) <= 0) return Math.min(b.to_ns, lateness.max_ns);
	return 0;
}
