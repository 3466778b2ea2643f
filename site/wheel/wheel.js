'use strict';

// The page of the wheel. Package wheelview has the state; this script draws it.
(() => {
  const root = document.getElementById('wheel');
  if (!root) return;

  const presets = ['Cascade', 'Rounds', 'Heartbeat', 'Crowd']; // in the order of wheelview.Presets
  const colors = ['#00796b', '#c2410c', '#4338ca', '#be185d', '#4d7c0f', '#0369a1', '#7e22ce', '#a16207'];
  const center = 210;
  const radii = [[62, 104], [108, 150], [154, 204]]; // of the rings, by level

  let view = null;
  let playing = 0; // the number of the interval, or 0

  const svgNamespace = 'http://www.w3.org/2000/svg';

  // element makes an element of HTML, or of SVG if its parent is one.
  function element(parent, name, attributes = {}, text = '') {
    const svg = name === 'svg' || parent.namespaceURI === svgNamespace;
    const e = svg ? document.createElementNS(svgNamespace, name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
    if (text !== '') e.textContent = text;
    parent.appendChild(e);
    return e;
  }

  function point(radius, turn) {
    const angle = (turn - 0.25) * 2 * Math.PI;
    return [center + radius * Math.cos(angle), center + radius * Math.sin(angle)];
  }

  function slotPath(level, slot) {
    const [inner, outer] = radii[level];
    const [from, to] = [(slot + 0.03) / 8, (slot + 0.97) / 8];
    const corner = (radius, turn) => point(radius, turn).map((x) => x.toFixed(2)).join(' ');
    return `M${corner(inner, from)} L${corner(outer, from)} A${outer} ${outer} 0 0 1 ${corner(outer, to)}` +
      ` L${corner(inner, to)} A${inner} ${inner} 0 0 0 ${corner(inner, from)} Z`;
  }

  // spot returns where the dot of a timer stands: its slot has up to three rows.
  function spot(level, slot, i, n) {
    const [inner, outer] = radii[level];
    const perRow = Math.max(1, Math.min(n, level + 2));
    const rows = Math.ceil(n / perRow);
    const row = Math.floor(i / perRow);
    const inRow = Math.min(perRow, n - row * perRow);
    const radius = inner + (outer - inner) * (rows === 1 ? 0.42 : 0.25 + 0.5 * row / (rows - 1));
    return point(radius, (slot + (i % perRow + 1) / (inRow + 1)) / 8);
  }

  function build() {
    root.replaceChildren();
    const controls = element(root, 'div', {class: 'wheel-controls', role: 'toolbar', 'aria-label': 'Wheel'});
    const button = (id, text, title, act, kind = '') => {
      const b = element(controls, 'button', {type: 'button', id, title, class: kind}, text);
      b.addEventListener('click', act);
      return b;
    };
    button('wheel-play', 'Play', 'Advance the clock tick by tick', play, 'primary');
    button('wheel-step', '+1 tick', 'Advance the clock by one tick', () => run('step', 1));
    button('wheel-skip', 'Next expiry', 'Advance the clock to the next bucket that expires', () => run('skip'));
    const speed = element(element(controls, 'label', {}, 'Speed'), 'input',
      {type: 'range', id: 'wheel-speed', min: 1, max: 30, value: 4, 'aria-label': 'Ticks per second'});
    speed.addEventListener('change', () => { if (playing) { pause(); play(); } });
    element(controls, 'span', {class: 'gap'});
    const label = element(controls, 'label', {}, 'Delay');
    const delay = element(label, 'input', {type: 'range', id: 'wheel-delay', min: 0, max: 100, value: 40, 'aria-label': 'Delay in ticks'});
    const shown = element(label, 'output', {for: 'wheel-delay'});
    const show = () => { shown.textContent = `${ticksOf(delay.value)} ticks`; };
    delay.addEventListener('input', show);
    show();
    button('wheel-arm', 'Add timer', 'Arm a timer', () => run('arm', ticksOf(delay.value)), 'primary');
    element(controls, 'span', {class: 'gap'});
    presets.forEach((name, i) => button(`wheel-${name.toLowerCase()}`, name, `Example: ${name}`, () => { pause(); run('preset', i); }));
    button('wheel-reset', 'Reset', 'Begin with an empty wheel', () => { pause(); run('reset'); });

    const svg = element(root, 'svg', {viewBox: '0 0 420 420', role: 'img', 'aria-label': 'Three rings of eight slots with timers'});
    element(svg, 'g', {id: 'wheel-slots'});
    for (let level = 2; level >= 0; level--) {
      for (let slot = 0; slot < 8; slot++) {
        element(svg.firstChild, 'path', {id: `slot-${level}-${slot}`, class: 'slot', d: slotPath(level, slot)});
        const [x, y] = point(radii[level][1] - 7, (slot + 0.5) / 8);
        element(svg.firstChild, 'text', {class: 'number', x, y}, slot);
      }
    }
    element(svg, 'text', {class: 'clock', id: 'wheel-clock', x: center, y: center - 2});
    element(svg, 'text', {class: 'caption', x: center, y: center + 18}, 'tick');
    element(svg, 'g', {id: 'wheel-dots'});

    const side = element(root, 'div', {class: 'wheel-side'});
    const facts = element(side, 'div', {class: 'wheel-facts'});
    for (const [id, text] of [['wheel-next', 'next expiry'], ['wheel-stops', 'wake-ups'], ['wheel-pending', 'pending']]) {
      const fact = element(facts, 'div');
      element(fact, 'b', {id});
      element(fact, 'span', {}, text);
    }
    element(side, 'h3', {}, 'Timers');
    const table = element(element(side, 'div', {class: 'wheel-timers'}), 'table');
    const head = element(element(table, 'thead'), 'tr');
    for (const title of ['timer', 'deadline', 'level', 'slot', 'rounds', '']) element(head, 'th', {scope: 'col'}, title);
    element(table, 'tbody', {id: 'wheel-rows'});
    element(side, 'h3', {}, 'What happens');
    element(side, 'div', {class: 'wheel-log', id: 'wheel-log', role: 'log', tabindex: 0, 'aria-label': 'What happens'});
  }

  // ticksOf converts the position of the slider, 0 to 100, to 1 to 1,500 ticks.
  function ticksOf(position) { return Math.round(1500 ** (position / 100)); }

  function run(method, ...args) {
    view = JSON.parse(window.wheel[method](...args));
    draw();
  }

  function play() {
    if (playing) { pause(); return; }
    playing = setInterval(() => run('step', 1), 1000 / document.getElementById('wheel-speed').value);
    document.getElementById('wheel-play').textContent = 'Pause';
  }

  function pause() {
    clearInterval(playing);
    playing = 0;
    document.getElementById('wheel-play').textContent = 'Play';
  }

  function draw() {
    const set = (id, text) => { document.getElementById(id).textContent = text; };
    set('wheel-clock', view.tick);
    set('wheel-next', view.next < 0 ? '–' : view.next);
    set('wheel-stops', view.stops);
    set('wheel-pending', view.timers.length);
    view.levels.forEach((level, l) => level.slots.forEach((timers, s) => {
      document.getElementById(`slot-${l}-${s}`).setAttribute('class', s === level.hand ? 'slot hand' : 'slot');
    }));
    drawDots();
    drawRows();
    const log = document.getElementById('wheel-log');
    log.replaceChildren();
    for (const line of view.log) element(log, 'div', {class: / runs /.test(line) ? 'runs' : ''}, line);
    log.scrollTop = log.scrollHeight;
  }

  // drawDots moves the dots of timers that were there before, so that they glide.
  function drawDots() {
    const dots = document.getElementById('wheel-dots');
    const old = new Map([...dots.children].map((e) => [e.id, e]));
    for (const timer of view.timers) {
      const id = `timer-${timer.id}`;
      const fellows = view.levels[timer.level].slots[timer.slot];
      const [x, y] = spot(timer.level, timer.slot, fellows.indexOf(timer.id), fellows.length);
      let dot = old.get(id);
      if (!dot) {
        dot = element(dots, 'g', {id});
        element(dot, 'title');
        element(dot, 'circle', {r: 7.5, fill: colors[timer.id % colors.length]});
        element(dot, 'text', {}, timer.id);
      }
      old.delete(id);
      dot.setAttribute('class', timer.rounds > 0 ? 'timer waits' : 'timer');
      dot.setAttribute('style', `transform: translate(${x.toFixed(1)}px, ${y.toFixed(1)}px)`);
      dot.firstChild.textContent = `Timer ${timer.id}, deadline ${timer.deadline}`;
    }
    for (const dot of old.values()) dot.remove();
  }

  function drawRows() {
    const rows = document.getElementById('wheel-rows');
    rows.replaceChildren();
    for (const timer of view.timers) {
      const row = element(rows, 'tr');
      for (const value of [timer.id, timer.deadline, timer.level, timer.slot, timer.rounds || '']) element(row, 'td', {}, value);
      const actions = element(row, 'td');
      const stop = element(actions, 'button', {type: 'button', 'aria-label': `Stop timer ${timer.id}`}, 'Stop');
      stop.addEventListener('click', () => run('stop', timer.id));
      const later = element(actions, 'button', {type: 'button', 'aria-label': `Postpone timer ${timer.id} by 30 ticks`}, '+30');
      later.addEventListener('click', () => run('reschedule', timer.id, timer.deadline - view.tick + 30));
    }
  }

  window.wheelReady = () => {
    build();
    run('preset', 0);
    root.dataset.ready = 'true';
  };

  const go = new Go();
  fetch('wheel/wheel.wasm')
    .then((response) => response.arrayBuffer())
    .then((bytes) => WebAssembly.instantiate(bytes, go.importObject))
    .then((result) => go.run(result.instance))
    .catch((error) => { root.textContent = `The wheel cannot be loaded: ${error}`; });
})();
