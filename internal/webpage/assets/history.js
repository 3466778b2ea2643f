'use strict';
// The page remembers the figures of the last five minutes. The server remembers none.

const WINDOW = 300e3; // ms
const RECENT = 60e3; // ms
const GAP = 15e3; // ms without figures at which a line is cut

class Past {
	constructor() { this.points = []; }

	// add adds a look at a thing. It ignores a known look, and forgets all points if the look is of
	// another process or thing.
	add(thing) {
		const at = Date.parse(thing.taken), last = this.points[this.points.length - 1];
		if (last && at === last.at) return;
		if (last && (at < last.at || Object.keys(thing.counters).some((name) => thing.counters[name] < last.counters[name]))) this.points = [];
		this.points.push({ at, pending: thing.pending, counters: thing.counters, lateness: thing.lateness });
		while (at - this.points[0].at > WINDOW) this.points.shift();
	}

	pending() { return this.points.map((p) => ({ at: p.at, values: [p.pending] })); }

	// rates returns counts per second between adjacent points.
	rates(...names) {
		return this.points.slice(1).map((p, k) => {
			const before = this.points[k], seconds = (p.at - before.at) / 1000;
			return { at: p.at, values: names.map((name) => seconds * 1000 > GAP ? null : (p.counters[name] - before.counters[name]) / seconds) };
		});
	}

	// recent returns the lateness of the last minute or, at first, since the first look. It is null
	// before the second look.
	recent() {
		const last = this.points[this.points.length - 1];
		const first = this.points.find((p) => last.at - p.at <= RECENT);
		if (!last || first === last) return null;
		const before = new Map(first.lateness.buckets.map((b) => [b.from_ns, b.count]));
		const buckets = last.lateness.buckets.map((b) => ({ ...b, count: b.count - (before.get(b.from_ns) || 0) })).filter((b) => b.count > 0);
		return { buckets, count: buckets.reduce((sum, b) => sum + b.count, 0), max_ns: last.lateness.max_ns };
	}

	// rate returns the present rate, or null if it is unknown.
	rate(name) {
		const all = this.rates(name);
		return all.length ? all[all.length - 1].values[0] : null;
	}
}

// quantile returns an upper bound of a quantile of lateness: the end of its bucket, and at most the
// largest lateness.
function quantile(lateness, part) {
	let left = Math.ceil(lateness.count * part);
	for (const b of lateness.buckets) if ((left -= b.count) <= 0) return Math.min(b.to_ns, lateness.max_ns);
	return 0;
}
