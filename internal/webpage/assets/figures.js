'use strict';
// Shared textual parts of pages: the figures at the top, the buttons with names, and parts of
// tables.

// rateAndTotal returns the current rate and the total of a counter.
function rateAndTotal(subject, past, name) {
	const rate = past.rate(name);
	return [rate === null ? '\u2013' : `${compact(rate)}/s`, `${compact(subject.counters[name])} in all`];
}

// lateNow returns the 99th percentile of lateness in the last minute or, if nothing ran then, of
// all time.
function lateNow(subject, past) {
	const recent = past.recent();
	if (subject.lateness.count === 0) return ['\u2013', 'no data yet'];
	return recent && recent.count > 0 ? [duration(quantile(recent, 0.99)), 'last minute'] : [duration(subject.lateness.p99_ns), 'all time'];
}

// roomy formats a count with all digits if it fits into a tile.
function roomy(n) { return n < 1e7 ? full(n) : compact(n); }

// drawTiles shows figures. A tile is [id, title, function]. The function takes a subject and its
// recent samples, and returns the figure and a note.
function drawTiles(place, tiles, subject, past) {
	if (place.children.length !== tiles.length) {
		place.replaceChildren(...tiles.map(([id, title]) => make('div', {}, make('dt', {}, title), make('dd', { id: `tile-${id}` }, make('span'), make('small')))));
	}
	tiles.forEach(([, , figures], k) => {
		const [value, unit] = figures(subject, past), dd = place.children[k].lastChild;
		write(dd.firstChild, value);
		write(dd.lastChild, unit);
	});
}

function emptyRow(columns, text) { return make('tr', {}, make('td', { colspan: columns }, text)); }

// drawNames shows a button for each name. It keeps existing buttons, so that the focus is not lost.
// An entry may have a count with a label.
function drawNames(place, entries, chosen, onChoose) {
	const names = entries.map((entry) => entry.name);
	const there = [...place.children].map((button) => button.firstChild.textContent);
	if (names.length !== there.length || names.some((name, k) => name !== there[k])) {
		place.replaceChildren(...names.map((name) => {
			const button = make('button', { type: 'button' }, make('span', { dir: 'auto' }, name), make('span', { class: 'count' }));
			button.addEventListener('click', () => onChoose(name));
			return button;
		}));
	}
	entries.forEach(({ name, count, label }, k) => {
		const button = place.children[k];
		if (label) {
			write(button.lastChild, compact(count));
			button.lastChild.setAttribute('aria-label', label);
		}
		const isNew = name === chosen && button.getAttribute('aria-pressed') !== 'true';
		button.setAttribute('aria-pressed', String(name === chosen));
		if (isNew) reveal(place, button);
	});
}

// reveal scrolls a container until the item in it is visible. It does not scroll the page.
function reveal(place, item) {
	const room = 6; // for the outline of the focus
	const top = item.offsetTop - place.offsetTop - room, bottom = top + item.offsetHeight + 2 * room;
	if (top < place.scrollTop) place.scrollTop = top;
	if (bottom > place.scrollTop + place.clientHeight) place.scrollTop = bottom - place.clientHeight;
}
