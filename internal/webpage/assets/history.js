'use strict';
// What the page remembers of each wheel or queue: the last five minutes of figures. The server remembers nothing.

const WINDOW = 300e3; // ms
const RECENT = 60e3; // ms of what is called recent
const GAP = 15e3; // ms without figures that are a hole and not a line

class Past {
	constructor() { this.points = []; }

	// add takes in a look at a thing. A look that is known already changes nothing, and one of another process or thing begins anew.
	add(thing) {
		const at = Date.parse(thing.taken), last = this.points[this.points.length - 1];
		if (last && at === last.at) return;
		if (last && (at < last.at || Object.keys(thing.counters).some((name) => thing.counters[name] < last.counters[name]))) this.points = [];
		this.points.push({ at, pending: thing.pending, counters: thing.counters, lateness: thing.lateness });
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

	// recent is the lateness of the last minute or, at first, since the page looks at it; null where nothing is known of that.
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
