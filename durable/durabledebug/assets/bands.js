'use strict';
// Pending messages by due time: one bar for each band of time from now.

// until returns the label of a band, its end.
function until(band, last) {
	if (band.to_ns === 0) return 'due';
	return band === last ? 'later' : duration(band.to_ns);
}

class BandChart {
	constructor(place) {
		this.bars = svg('path', { class: 'bar-fill' });
		this.late = svg('path', { class: 'late' });
		this.high = make('span', { class: 'tick-label top' });
		this.middle = make('span', { class: 'tick-label mid' });
		this.labels = make('div', { class: 'band-labels', 'aria-hidden': 'true' });
		this.image = make('div', { class: 'plot', role: 'img' },
			svg('svg', { viewBox: '0 0 100 100', preserveAspectRatio: 'none', 'aria-hidden': 'true' }, svg('path', { class: 'grid', d: 'M0 0H100M0 50H100' }), this.bars, this.late),
			this.high, this.middle);
		place.append(this.image, this.labels);
	}

	draw(bands) {
		const last = bands[bands.length - 1], width = 100 / bands.length;
		const high = nice(Math.max(1, ...bands.map((band) => band.messages)));
		const bar = (band, k) => band.messages === 0 ? '' :
			`M${(k * width + width * 0.1).toFixed(2)} 100V${(100 - Math.max(0.8, band.messages / high * 100)).toFixed(2)}h${(width * 0.8).toFixed(2)}V100Z`;
		this.late.setAttribute('d', bar(bands[0], 0));
		this.bars.setAttribute('d', bands.map((band, k) => k === 0 ? '' : bar(band, k)).join(''));
		write(this.high, compact(high));
		write(this.middle, compact(high / 2));
		if (this.labels.children.length !== bands.length) {
			this.labels.replaceChildren(...bands.map((band) => make('span', {}, make('b'), until(band, last))));
		}
		bands.forEach((band, k) => write(this.labels.children[k].firstChild, compact(band.messages)));
		const said = bands.filter((band) => band.messages > 0).map((band) => `${until(band, last)}: ${full(band.messages)}`);
		this.image.setAttribute('aria-label', said.length ? `Pending messages by due time from now: ${said.join('; ')}` : 'No message is pending.');
	}
}
