'use strict';
// The page asks for one wheel once a second, while somebody can see it.

const INTERVAL = 1000, RETRY = 3000, PATIENCE = 10000; // ms

const page = {
	chosen: new URLSearchParams(location.search).get('wheel'), // null: the first one
	paused: false,
	past: new Map(), // by name
	heat: new Map(),
	timer: 0,
	request: null,

	start() {
		this.rings = new Rings(byId('rings'), (at) => this.strips.pointed(at));
		this.strips = new Strips(byId('strips'), byId('readout'), (cursor) => this.rings.choose(cursor));
		this.pending = new LineChart(byId('chart-pending'), ['pending'], { area: true });
		this.rates = new LineChart(byId('chart-rates'), ['armed', 'fired', 'stopped'], { unit: '/s' });
		this.wakeups = new LineChart(byId('chart-wakeups'), ['wake-ups', 'timers moved'], { unit: '/s' });
		this.lateness = new LatenessChart(byId('chart-lateness'));
		byId('pause').addEventListener('click', () => this.pause(!this.paused));
		byId('slots-details').addEventListener('toggle', () => this.drawTable());
		document.addEventListener('visibilitychange', () => { if (document.hidden) this.rest(); else this.ask(); });
		if (!document.hidden) this.ask();
	},

	// ask fetches the wheel, now and then once a second.
	async ask() {
		this.rest();
		if (this.paused) return;
		const request = this.request = new AbortController();
		const patience = setTimeout(() => request.abort(), PATIENCE);
		let next = INTERVAL;
		try {
			const query = new URLSearchParams({ format: 'json' });
			if (this.chosen !== null) query.set('wheel', this.chosen);
			const response = await fetch(`?${query}`, { signal: request.signal, cache: 'no-store', headers: { Accept: 'application/json' } });
			if (!response.ok && response.status !== 404) throw new Error(`the server says ${response.status}`);
			if (!(response.headers.get('Content-Type') || '').startsWith('application/json')) throw new Error('what came is not JSON; a login may have run out');
			const answer = await response.json();
			if (this.request !== request) return; // another wheel was chosen meanwhile
			this.take(answer);
			this.state('live', 'live');
		} catch (error) {
			if (this.request !== request) return;
			this.lost(error.name === 'AbortError' ? `none in ${PATIENCE / 1000} s` : error.message);
			next = RETRY;
		} finally {
			clearTimeout(patience);
		}
		this.timer = setTimeout(() => this.ask(), next);
	},

	// lost says that there is no answer, and how old what is seen is.
	lost(why) {
		const since = this.wheel ? `What is shown is of ${clockTime(this.wheel.taken).slice(0, 8)}. ` : '';
		this.state('lost', 'no answer');
		this.notice(`No answer: ${why}. ${since}Trying again every ${RETRY / 1000} seconds.`);
		document.title = `no answer${this.wheel ? ` \u2013 ${this.wheel.name}` : ''}`;
	},

	// rest ends what is under way.
	rest() {
		clearTimeout(this.timer);
		this.timer = 0;
		if (this.request) this.request.abort();
		this.request = null;
	},

	take(answer) {
		const wheel = answer.wheel;
		drawWheels(byId('wheels'), answer.wheels, wheel ? wheel.name : this.chosen, (name) => this.choose(name));
		byId('main').hidden = !wheel;
		if (!wheel) {
			this.notice(answer.wheels.length ? `There is no wheel \u201c${this.chosen}\u201d here. Choose another one.` : 'No wheel has been added yet.');
			return;
		}
		this.notice(wheel.stopped ? 'This wheel was stopped. Nothing is pending; its counters are those of its end.' : '');
		this.wheel = wheel;
		if (!this.past.has(wheel.name)) this.past.set(wheel.name, new Past());
		if (!this.heat.has(wheel.name)) this.heat.set(wheel.name, new Heat());
		this.past.get(wheel.name).add(wheel);
		this.draw(wheel, this.past.get(wheel.name), this.heat.get(wheel.name));
	},

	draw(wheel, past, heat) {
		heat.see(wheel.levels.reduce((most, level) => Math.max(most, ...level.cells), 0));
		document.title = `${wheel.name}: ${compact(wheel.pending)} pending`;
		const query = new URLSearchParams({ format: 'json', wheel: wheel.name });
		byId('json').href = `?${query}`;
		query.set('format', 'pprof');
		byId('holders').href = `?${query}`;
		drawTiles(byId('tiles'), wheel, past);
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
	},

	// drawTable fills the table only while it is open.
	drawTable() {
		if (this.wheel && byId('slots-details').open) drawSlots(byId('slots').tBodies[0], byId('slots-note'), this.wheel);
	},

	choose(name) {
		this.chosen = name;
		history.replaceState(null, '', `?${new URLSearchParams({ wheel: name })}`);
		if (this.paused) this.pause(false); else this.ask();
	},

	pause(paused) {
		this.paused = paused;
		byId('pause').setAttribute('aria-pressed', String(paused));
		this.rest();
		if (paused) this.state('paused', 'paused'); else this.ask();
	},

	state(name, text) {
		byId('state').dataset.state = name;
		byId('main').classList.toggle('stale', name === 'lost');
		write(byId('state-text'), text);
	},

	notice(text) {
		byId('notice').hidden = text === '';
		write(byId('notice'), text);
	},
};

// theme follows the system until somebody chooses, and remembers the choice where the browser lets it.
const theme = {
	names: ['auto', 'light', 'dark'],

	start() {
		let kept = null;
		try { kept = localStorage.getItem('timingwheel-theme'); } catch { /* the browser keeps nothing: then it is auto */ }
		this.set(this.names.includes(kept) ? kept : 'auto');
		byId('theme').addEventListener('click', () => this.set(this.names[(this.names.indexOf(this.name) + 1) % this.names.length]));
	},

	set(name) {
		this.name = name;
		if (name === 'auto') delete document.documentElement.dataset.theme; else document.documentElement.dataset.theme = name;
		write(byId('theme'), `Theme: ${name}`);
		try { localStorage.setItem('timingwheel-theme', name); } catch { /* as above */ }
	},
};

theme.start();
page.start();
