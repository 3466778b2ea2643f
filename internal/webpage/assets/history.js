'use strict';
// The page keeps the samples of the last five minutes. The server keeps none.

const WINDOW = 300e3; // ms
const RECENT = 60e3; // ms
const GAP = 15e3; // ms; a line is cut at a longer gap between two samples

// Past has the recent samples of one subject.
class Past {
	constructor() { this.points = []; }

	// add adds a sample of a subject. It ignores a known sample, and discards all earlier ones if
	// the sample is of another process or subject.
	add(subject) {
		const at = Date.parse(subject.taken), last = this.points[this.points.length - 1];
		if (last && at === last.at) return;
		if (last && (at < last.at || Object.keys(subject.counters).some((name) => subject.counters[name] < last.counters[name]))) this.points = [];
		this.points.push({ at, pending: subject.pending, counters: subject.counters, lateness: subject.lateness });
		while (at - this.points[0].at > WINDOW) this.points.shift();
	}

	pending() { return this.points.map((p) => ({ at: p.at, values: [p.pending] })); }

	// rates returns the rates per second between adjacent samples.
	rates(...names) {
		return this.points.slice(1).map((p, k) => {
			const before = this.points[k], seconds = (p.at - before.at) / 1000;
			return { at: p.at, values: names.map((name) => seconds * 1000 > GAP ? null : (p.counters[name] - before.counters[name]) / seconds) };
		});
	}

	// recent returns the lateness of the last minute or, at first, since the first sample. It
	// returns null before the second sample.
	recent() {
		const last = this.points[this.points.length - 1];
		const first = this.points.find((p) => last.at - p.at <= RECENT);
		if (!last || first === last) return null;
		const before = new Map(first.lateness.buckets.map((b) => [b.from_ns, b.count]));
		const buckets = last.lateness.buckets.map((b) => ({ ...b, count: b.count - (before.get(b.from_ns) || 0) })).filter((b) => b.count > 0);
		return { buckets, count: buckets.reduce((sum, b) => sum + b.count, 0), max_ns: last.lateness.max_ns };
	}

	// rate returns the current rate, or null if it is unknown.
	rate(name) {
		const all = this.rates(name);
		return all.length ? all[all.length - 1].values[0] : null;
	}
}

// quantile returns an upper bound of a quantile of lateness: the end of its bucket, but at most the
// largest lateness.
function quantile(lateness, part) {
	let left = Math.ceil(lateness.count * part);
	for (const b of lateness.buckets) if ((left -= b.count) <= 0) return Math.min(b.to_ns, lateness.max_ns);
	return 0;
}
