'use strict';
// The parts in text: the figures at the top, the names to choose from, and parts of tables.

function rateAndTotal(thing, past, name) {
	const rate = past.rate(name);
	return [rate === null ? '\u2013' : `${compact(rate)}/s`, `${compact(thing.counters[name])} in all`];
}

// lateNow returns the lateness of the last minute or, if nothing has run then, of all time.
function lateNow(thing, past) {
	const recent = past.recent();
	if (thing.lateness.count === 0) return ['\u2013', 'nothing has run'];
	return recent && recent.count > 0 ? [duration(quantile(recent, 0.99)), 'last minute'] : [duration(thing.lateness.p99_ns), 'of all'];
}

// roomy writes all digits of what fits into a tile.
function roomy(n) { return n < 1e7 ? full(n) : compact(n); }

// drawTiles shows figures. A tile is [id, title, function]; the function takes a thing and its
// past, and returns the figure and a note.
function drawTiles(place, tiles, thing, past) {
	if (place.children.length !== tiles.length) {
		place.replaceChildren(...tiles.map(([id, title]) => make('div', {}, make('dt', {}, title), make('dd', { id: `tile-${id}` }, make('span'), make('small')))));
	}
	tiles.forEach(([, , figures], k) => {
		const [value, unit] = figures(thing, past), dd = place.children[k].lastChild;
		write(dd.firstChild, value);
		write(dd.lastChild, unit);
	});
}

function emptyRow(columns, text) { return make('tr', {}, make('td', { colspan: columns }, text)); }

// drawNames shows a button for each name. It keeps existing buttons, so that the focus stays. An
// entry may have a count with a label.
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

// reveal scrolls a place until the item in it is visible. It does not scroll the page.
function reveal(place, item) {
	const room = 6; // for the mark of the focus
	const top = item.offsetTop - place.offsetTop - room, bottom = top + item.offsetHeight + 2 * room;
	if (top < place.scrollTop) place.scrollTop = top;
	if (bottom > place.scrollTop + place.clientHeight) place.scrollTop = bottom - place.clientHeight;
}
