"use strict";
(() => {
const byId = (id) => document.getElementById(id);
const plan = JSON.parse(byId("plan").textContent);
const state = { stage: plan.stages.length - 1, phase: 1, sequence: 0 };
// For tests and the curious. `grasp` is the number of the chosen grasp in the last stage of the plan.
window.fistful = {
  ready: false, triangles: 0, plan,
  get stage() { return state.stage; },
  get phase() { return state.phase; },
  get sequence() { return state.sequence; },
  get grasp() { return rowOf(plan.stages.length - 1).grasp; },
  get joints() { return jointsAt(state.stage, state.phase); },
  poses: (joints) => bodyPoses(plan.hand.tree, joints),
};

// Vectors are arrays of 3, rotations arrays of 9 by rows, matrices for GL arrays of 16 by columns.

const add = (a, b) => [a[0] + b[0], a[1] + b[1], a[2] + b[2]];
const sub = (a, b) => [a[0] - b[0], a[1] - b[1], a[2] - b[2]];
const scale = (a, s) => [a[0] * s, a[1] * s, a[2] * s];
const dot = (a, b) => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
const cross = (a, b) => [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];
const unit = (a) => scale(a, 1 / (Math.hypot(...a) || 1));
const clamp = (x, low, high) => Math.min(Math.max(x, low), high);
const rotate = (R, v) => [0, 3, 6].map((i) => R[i] * v[0] + R[i + 1] * v[1] + R[i + 2] * v[2]);
const product = (A, B) => A.map((_, k) => {
  const i = 3 * Math.floor(k / 3), j = k % 3;
  return A[i] * B[j] + A[i + 1] * B[j + 3] + A[i + 2] * B[j + 6];
});
const rotationOf = ([w, x, y, z]) => [
  1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y),
  2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x),
  2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)];
const about = (axis, angle) => {
  const s = Math.sin(angle / 2);
  return rotationOf([Math.cos(angle / 2), axis[0] * s, axis[1] * s, axis[2] * s]);
};
const place = (pose, v) => add(pose.p, rotate(pose.R, v));
const matrixOf = ({ R, p }, s = [1, 1, 1]) => [
  R[0] * s[0], R[3] * s[0], R[6] * s[0], 0, R[1] * s[1], R[4] * s[1], R[7] * s[1], 0,
  R[2] * s[2], R[5] * s[2], R[8] * s[2], 0, p[0], p[1], p[2], 1];
const multiplied = (A, B) => Array.from({ length: 16 }, (_, k) => {
  const r = k % 4, c = k - r;
  return A[r] * B[c] + A[r + 4] * B[c + 1] + A[r + 8] * B[c + 2] + A[r + 12] * B[c + 3];
});
const lookFrom = (eye, right, above, forward) => [
  right[0], above[0], -forward[0], 0, right[1], above[1], -forward[1], 0,
  right[2], above[2], -forward[2], 0, -dot(right, eye), -dot(above, eye), dot(forward, eye), 1];
const frameAlong = (n) => {
  const x = unit(cross(Math.abs(n[0]) < 0.7 ? [1, 0, 0] : [0, 1, 0], n)), y = cross(n, x);
  return [x[0], y[0], n[0], x[1], y[1], n[1], x[2], y[2], n[2]];
};

// Forward kinematics, as in hands/kinematics.py: joints are in the order of their bodies.
function bodyPoses(tree, joints) {
  const poses = [];
  let j = 0;
  tree.parent.forEach((parent, b) => {
    let R = tree.R[b], p = tree.p[b];
    for (; j < tree.joints.length && tree.joints[j].body === b; j++) {
      const { slides, anchor, axis, zero } = tree.joints[j], travel = joints[j] - zero;
      if (slides) p = add(p, scale(rotate(R, axis), travel));
      else {
        const turned = product(R, about(axis, travel));
        p = add(p, sub(rotate(R, anchor), rotate(turned, anchor)));
        R = turned;
      }
    }
    if (parent >= 0) [p, R] = [place(poses[parent], p), product(poses[parent].R, R)];
    poses.push({ p, R });
  });
  return poses;
}

// What the page carries.

const TYPES = { float32: Float32Array, uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array, int32: Int32Array };
let bytes;

async function unpack() {
  if (!window.DecompressionStream) throw new Error("This browser is too old for this page: it needs one of 2023 or later.");
  const packed = Uint8Array.from(atob(byId("blob").textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  bytes = await new Response(stream).arrayBuffer();
}

function arrayOf({ dtype, offset, shape }) {
  return new TYPES[dtype](bytes, offset, shape.reduce((a, b) => a * b, 1));
}

// Row i of an array as an array of vectors of its last dimension.
function vectorsOf(entry, i) {
  const [, n, width] = entry.shape, all = arrayOf(entry);
  return Array.from({ length: n }, (_, k) => Array.from(all.subarray((i * n + k) * width, (i * n + k + 1) * width)));
}

// Corners of all triangles with normals, the mean of those around weighted by angles; edges of 35 degrees stay sharp.
function cornersOf({ origin, step, vertices, faces }) {
  const steps = arrayOf(vertices), index = Int32Array.from(arrayOf(faces));
  for (let i = 1; i < index.length; i++) index[i] += index[i - 1];
  const position = Float64Array.from(steps, (s, i) => origin[i % 3] + s * step[i % 3]);
  const count = index.length / 3, angles = new Float64Array(index.length), units = new Float64Array(index.length);
  const at = (i) => [position[3 * i], position[3 * i + 1], position[3 * i + 2]];
  const starts = new Uint32Array(steps.length / 3 + 1);
  for (let f = 0; f < count; f++) {
    const corner = [0, 1, 2].map((k) => at(index[3 * f + k])), side = [0, 1, 2].map((k) => unit(sub(corner[(k + 1) % 3], corner[k])));
    units.set(unit(cross(side[0], side[1])), 3 * f);
    for (let k = 0; k < 3; k++) {
      angles[3 * f + k] = Math.acos(clamp(-dot(side[k], side[(k + 2) % 3]), -1, 1));
      starts[index[3 * f + k] + 1]++;
    }
  }
  for (let i = 1; i < starts.length; i++) starts[i] += starts[i - 1];
  const around = new Uint32Array(index.length), filled = starts.slice();
  index.forEach((v, c) => { around[filled[v]++] = c; });
  const out = new Float32Array(6 * index.length);
  index.forEach((v, c) => {
    const f = 3 * Math.floor(c / 3);
    let x = 0, y = 0, z = 0;
    for (let k = starts[v]; k < starts[v + 1]; k++) {
      const g = 3 * Math.floor(around[k] / 3), weight = angles[around[k]];
      if (units[f] * units[g] + units[f + 1] * units[g + 1] + units[f + 2] * units[g + 2] > 0.82) {
        x += weight * units[g]; y += weight * units[g + 1]; z += weight * units[g + 2];
      }
    }
    const length = Math.hypot(x, y, z) || 1;
    out.set([...at(v), x / length, y / length, z / length], 6 * c);
  });
  return out;
}

// A surface of revolution about z, along points (r, z), with normals; for contacts.
function turnedShape(profile, around = 24) {
  const out = [], corner = (k, a) => [profile[k][0] * Math.cos(a), profile[k][0] * Math.sin(a), profile[k][1]];
  for (let k = 0; k + 1 < profile.length; k++) {
    const [r0, z0] = profile[k], [r1, z1] = profile[k + 1], n = unit([z1 - z0, r0 - r1, 0]);
    for (let i = 0; i < around; i++) {
      const a = (2 * Math.PI * i) / around, b = (2 * Math.PI * (i + 1)) / around;
      for (const [m, angle] of [[k, a], [k, b], [k + 1, b], [k, a], [k + 1, b], [k + 1, a]]) {
        out.push(...corner(m, angle), n[0] * Math.cos(angle), n[0] * Math.sin(angle), n[1]);
      }
    }
  }
  return new Float32Array(out);
}

// Drawing.

const SHADED = [`#version 300 es
  layout(location = 0) in vec3 position; layout(location = 1) in vec3 normal;
  uniform mat4 model, view, shadow; out vec3 n, p; out vec4 s;
  void main() {
    vec4 world = model * vec4(position, 1.0);
    n = mat3(model) * normal; p = world.xyz; s = shadow * world; gl_Position = view * world;
  }`, `#version 300 es
  precision highp float; precision highp sampler2DShadow;
  in vec3 n, p; in vec4 s; uniform vec3 eye, light, above; uniform vec4 colour; uniform float flatness;
  uniform sampler2DShadow depth; out vec4 pixel;
  float lit(vec3 normal) {
    vec3 at = s.xyz * 0.5 + 0.5; at.z -= 0.0015 + 0.004 * (1.0 - max(dot(normal, light), 0.0));
    float sum = 0.0;
    for (int i = -1; i <= 1; i++) for (int j = -1; j <= 1; j++)
      sum += texture(depth, at + vec3(float(i), float(j), 0.0) * 2.2 / 2048.0);
    return sum / 9.0;
  }
  void main() {
    vec3 away = normalize(eye - p), normal = normalize(n);
    if (!gl_FrontFacing) normal = -normal;
    float key = max(dot(normal, light), 0.0), open = mix(0.25, 1.0, lit(normal));
    float sky = 0.5 + 0.5 * dot(normal, above), front = max(dot(normal, away), 0.0);
    float shade = 0.46 + 0.14 * sky + 0.16 * front + 0.36 * key * open;
    float gloss = 0.10 * open * pow(max(dot(normal, normalize(light + away)), 0.0), 40.0);
    pixel = vec4(colour.rgb * mix(shade, 1.0, flatness) + gloss * (1.0 - flatness), colour.a);
  }`];
const DEPTH = [`#version 300 es
  layout(location = 0) in vec3 position; uniform mat4 model, view;
  void main() { gl_Position = view * model * vec4(position, 1.0); }`, `#version 300 es
  precision highp float; void main() {}`];
const DOTS = [`#version 300 es
  layout(location = 0) in vec3 position; uniform mat4 view; uniform float size;
  void main() { gl_Position = view * vec4(position, 1.0); gl_PointSize = max(3.0, size / gl_Position.w); }`, `#version 300 es
  precision highp float; uniform vec4 colour; out vec4 pixel;
  void main() {
    float r = 2.0 * length(gl_PointCoord - 0.5); if (r > 1.0) discard;
    pixel = vec4(colour.rgb * (r > 0.75 ? 0.55 : 1.0), colour.a);
  }`];
const SHADOW = 2048;
const BACKGROUND = [0.957, 0.965, 0.973];
const FOV = Math.tan((15 * Math.PI) / 180);
const canvas = byId("canvas");
let gl, shaded, depthOnly, dots, shadowMap, meshes = [], shapes = {}, dotBuffer;

function program([vertex, fragment]) {
  const p = gl.createProgram();
  for (const [kind, text] of [[gl.VERTEX_SHADER, vertex], [gl.FRAGMENT_SHADER, fragment]]) {
    const shader = gl.createShader(kind);
    gl.shaderSource(shader, text);
    gl.compileShader(shader);
    gl.attachShader(p, shader);
  }
  gl.linkProgram(p);
  if (!gl.getProgramParameter(p, gl.LINK_STATUS)) throw new Error(`The graphics of this browser failed: ${gl.getProgramInfoLog(p)}`);
  const set = {}, kinds = { [gl.FLOAT_MAT4]: (l, v) => gl.uniformMatrix4fv(l, false, v), [gl.FLOAT_VEC4]: (l, v) => gl.uniform4fv(l, v),
    [gl.FLOAT_VEC3]: (l, v) => gl.uniform3fv(l, v), [gl.FLOAT]: (l, v) => gl.uniform1f(l, v), [gl.SAMPLER_2D_SHADOW]: (l, v) => gl.uniform1i(l, v) };
  for (let i = 0; i < gl.getProgramParameter(p, gl.ACTIVE_UNIFORMS); i++) {
    const { name, type } = gl.getActiveUniform(p, i), where = gl.getUniformLocation(p, name);
    set[name] = (value) => kinds[type](where, value);
  }
  return { p, set };
}

function uploaded(corners) {
  const vao = gl.createVertexArray();
  gl.bindVertexArray(vao);
  gl.bindBuffer(gl.ARRAY_BUFFER, gl.createBuffer());
  gl.bufferData(gl.ARRAY_BUFFER, corners, gl.STATIC_DRAW);
  [0, 1].forEach((k) => { gl.enableVertexAttribArray(k); gl.vertexAttribPointer(k, 3, gl.FLOAT, false, 24, 12 * k); });
  return { vao, count: corners.length / 6 };
}

function setUpDrawing(corners) {
  gl = canvas.getContext("webgl2", { antialias: true, alpha: false });
  if (!gl) return false;
  [shaded, depthOnly, dots] = [SHADED, DEPTH, DOTS].map(program);
  meshes = corners.map(uploaded);
  const arc = Array.from({ length: 9 }, (_, k) => [Math.sin((k * Math.PI) / 8), -Math.cos((k * Math.PI) / 8)]);
  shapes = { ball: uploaded(turnedShape(arc, 16)), rod: uploaded(turnedShape([[1, 0], [1, 0.75], [2.6, 0.75], [0, 1]], 12)), cone: uploaded(turnedShape([[0, 0], [1, 1]], 32)) };
  dotBuffer = { vao: gl.createVertexArray(), data: gl.createBuffer() };
  gl.bindVertexArray(dotBuffer.vao);
  gl.bindBuffer(gl.ARRAY_BUFFER, dotBuffer.data);
  gl.enableVertexAttribArray(0);
  gl.vertexAttribPointer(0, 3, gl.FLOAT, false, 12, 0);
  const texture = gl.createTexture();
  gl.bindTexture(gl.TEXTURE_2D, texture);
  gl.texStorage2D(gl.TEXTURE_2D, 1, gl.DEPTH_COMPONENT24, SHADOW, SHADOW);
  for (const [name, value] of [[gl.TEXTURE_COMPARE_MODE, gl.COMPARE_REF_TO_TEXTURE], [gl.TEXTURE_MIN_FILTER, gl.LINEAR], [gl.TEXTURE_MAG_FILTER, gl.LINEAR],
    [gl.TEXTURE_WRAP_S, gl.CLAMP_TO_EDGE], [gl.TEXTURE_WRAP_T, gl.CLAMP_TO_EDGE]]) gl.texParameteri(gl.TEXTURE_2D, name, value);
  shadowMap = gl.createFramebuffer();
  gl.bindFramebuffer(gl.FRAMEBUFFER, shadowMap);
  gl.framebufferTexture2D(gl.FRAMEBUFFER, gl.DEPTH_ATTACHMENT, gl.TEXTURE_2D, texture, 0);
  gl.enable(gl.DEPTH_TEST);
  gl.blendFunc(gl.SRC_ALPHA, gl.ONE_MINUS_SRC_ALPHA);
  canvas.addEventListener("webglcontextlost", () => say("The browser took the graphics away; reload the page."));
  return true;
}

// What is where: all that can be seen of a stage of a sequence.

const indexOf = (stage, sequence = state.sequence) => plan.sequences[sequence][stage];
const rowOf = (stage, sequence = state.sequence) => plan.stages[stage].rows[indexOf(stage, sequence)];

function jointsAt(stage, phase) {
  const q = vectorsOf(plan.stages[stage].joints, indexOf(stage)), leg = Math.min(Math.floor(phase), q.length - 2);
  return q[leg].map((a, j) => a + (phase - leg) * (q[leg + 1][j] - a));
}

function objectsAt(stage) {
  const s = plan.stages[stage], i = indexOf(stage), p = vectorsOf(s.p, i);
  return vectorsOf(s.wxyz, i).map((wxyz, n) => ({ p: p[n], R: rotationOf(wxyz) }));
}

function overlapAt(stage, phase, poses) {
  const o = plan.stages[stage].overlap, k = 3 * indexOf(stage) + Math.round(phase), starts = arrayOf(o.starts);
  const body = arrayOf(o.body), p_B = arrayOf(o.p_B);
  return Array.from(arrayOf(o.places).subarray(starts[k], starts[k + 1]), (i) => place(poses[body[i]], p_B.subarray(3 * i, 3 * i + 3)));
}

// Camera: turns about `target`; yaw and pitch are about the hand's upward direction.

const UP = unit(plan.hand.view.up), TOWARDS = unit(plan.hand.view.towards);
const AHEAD = unit(sub(TOWARDS, scale(UP, dot(TOWARDS, UP)))), ASIDE = cross(UP, AHEAD);
const camera = { yaw: 0, pitch: 0, distance: 1, target: [0, 0, 0], moved: false };
let outline = [], extent = { centre: [0, 0, 0], radius: 0.2 };

function axes() {
  const level = add(scale(AHEAD, Math.cos(camera.yaw)), scale(ASIDE, Math.sin(camera.yaw)));
  const forward = scale(add(scale(level, Math.cos(camera.pitch)), scale(UP, Math.sin(camera.pitch))), -1);
  const right = unit(cross(forward, UP));
  return { forward, right, above: cross(right, forward), eye: sub(camera.target, scale(forward, camera.distance)) };
}

// Points to keep in sight: the chosen sequence at every stage and phase.
function measureScene() {
  const points = [];
  plan.stages.forEach((_, stage) => {
    for (const phase of [0, 1, 2]) {
      const poses = bodyPoses(plan.hand.tree, jointsAt(stage, phase));
      plan.bodies.forEach(({ body, mesh }) => outline[mesh].forEach((v) => points.push(place(poses[body], v))));
    }
    objectsAt(stage).forEach((pose, n) => outline[plan.object_meshes[n]].forEach((v) => points.push(place(pose, v))));
  });
  const low = [0, 1, 2].map((i) => points.reduce((m, p) => Math.min(m, p[i]), Infinity));
  const high = [0, 1, 2].map((i) => points.reduce((m, p) => Math.max(m, p[i]), -Infinity));
  extent = { centre: scale(add(low, high), 0.5), radius: 0.5 * Math.hypot(...sub(high, low)), points };
}

function frame() {
  Object.assign(camera, { yaw: 0, pitch: Math.asin(dot(TOWARDS, UP)), moved: false });
  const { forward, right, above } = axes(), aspect = canvas.clientWidth / Math.max(canvas.clientHeight, 1);
  const along = [right, above, forward].map((axis) => extent.points.map((p) => dot(p, axis)));
  const middle = along.map((values) => values.reduce((m, v) => [Math.min(m[0], v), Math.max(m[1], v)], [Infinity, -Infinity]).reduce((a, b) => (a + b) / 2));
  camera.target = add(add(scale(right, middle[0]), scale(above, middle[1])), scale(forward, middle[2]));
  camera.distance = 1.1 * extent.points.reduce((far, _, i) => Math.max(far,
    Math.max(Math.abs(along[0][i] - middle[0]) / aspect, Math.abs(along[1][i] - middle[1])) / FOV - (along[2][i] - middle[2])), 0.01);
  redraw();
}

let waiting = false, blend = null;
function redraw() {
  if (!waiting && bytes) { waiting = true; requestAnimationFrame(() => { waiting = false; draw(); }); }
}

function draw() {
  const ratio = Math.min(window.devicePixelRatio || 1, 2), width = canvas.clientWidth, height = canvas.clientHeight;
  if (!gl || !width || !height) return;
  [canvas.width, canvas.height] = [canvas.width, canvas.height].some((v, k) => v !== Math.round(ratio * [width, height][k]))
    ? [Math.round(ratio * width), Math.round(ratio * height)] : [canvas.width, canvas.height];
  const { eye, forward, right, above } = axes(), r = extent.radius * 1.05;
  const near = Math.max(camera.distance * 0.02, 0.002), far = camera.distance + 4 * extent.radius + 1;
  const projection = [height / width / FOV, 0, 0, 0, 0, 1 / FOV, 0, 0, 0, 0, (far + near) / (near - far), -1, 0, 0, (2 * far * near) / (near - far), 0];
  const view = multiplied(projection, lookFrom(eye, right, above, forward));
  const light = unit(add(scale(forward, -1), add(scale(above, 0.5), scale(right, -0.45))));
  const lx = unit(cross(light, Math.abs(dot(light, UP)) < 0.95 ? UP : AHEAD)), ly = cross(lx, scale(light, -1));
  const box = [1 / r, 0, 0, 0, 0, 1 / r, 0, 0, 0, 0, -1 / r, 0, 0, 0, 0, 1];
  const shadow = multiplied(box, lookFrom(extent.centre, lx, ly, scale(light, -1)));

  let joints = jointsAt(state.stage, state.phase);
  if (blend) joints = joints.map((q, j) => blend.from[j] + blend.share * (q - blend.from[j]));
  const poses = bodyPoses(plan.hand.tree, joints), objects = objectsAt(state.stage);
  const [contacts, overlap] = [byId("show-contacts").checked, byId("show-overlap").checked];
  const code = arrayOf(plan.stages[state.stage].bodies), own = code.subarray(indexOf(state.stage) * poses.length);
  const things = plan.bodies.map(({ body, mesh }) => ({ mesh: meshes[mesh], model: matrixOf(poses[body]), colour: [...plan.colours.bodies[own[body]], 1] }));
  objects.forEach((pose, n) => {
    const alpha = (contacts || overlap ? 0.55 : 1) * (blend && n === state.stage ? blend.share : 1);
    things.push({ mesh: meshes[plan.object_meshes[n]], model: matrixOf(pose), colour: [...plan.objects[n].colour, alpha] });
  });

  gl.bindFramebuffer(gl.FRAMEBUFFER, shadowMap);
  gl.viewport(0, 0, SHADOW, SHADOW);
  gl.disable(gl.BLEND);
  gl.clear(gl.DEPTH_BUFFER_BIT);
  gl.useProgram(depthOnly.p);
  depthOnly.set.view(shadow);
  const show = (target, { mesh, model, colour, flatness = 0 }) => {
    target.set.model(model);
    if (target === shaded) { target.set.colour(colour); target.set.flatness(flatness); }
    gl.bindVertexArray(mesh.vao);
    gl.drawArrays(gl.TRIANGLES, 0, mesh.count);
  };
  things.forEach((thing) => thing.colour[3] > 0.5 && show(depthOnly, thing));

  gl.bindFramebuffer(gl.FRAMEBUFFER, null);
  gl.viewport(0, 0, canvas.width, canvas.height);
  gl.clearColor(...BACKGROUND, 1);
  gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
  gl.enable(gl.BLEND);
  gl.useProgram(shaded.p);
  Object.entries({ view, shadow, eye, light, above, depth: 0 }).forEach(([name, value]) => shaded.set[name](value));
  // Of what is seen through, only the outside is drawn, and the farthest first.
  const solid = (thing) => thing.colour[3] === 1;
  const away = ({ model }) => dot(model.slice(12, 15), forward);
  things.filter(solid).forEach((thing) => show(shaded, thing));
  things.filter((thing) => !solid(thing)).sort((a, b) => away(b) - away(a)).forEach((thing) => {
    gl.colorMask(false, false, false, false);
    show(shaded, thing);
    gl.colorMask(true, true, true, true);
    gl.depthFunc(gl.LEQUAL);
    show(shaded, thing);
    gl.depthFunc(gl.LESS);
  });
  // Contacts and overlaps are where hand and object meet, so they are drawn over both.
  gl.disable(gl.DEPTH_TEST);
  if (contacts) drawContacts(show);
  if (overlap) drawDots(overlapAt(state.stage, state.phase, poses), view, ratio);
  gl.enable(gl.DEPTH_TEST);
  placeLabels(objects, view, width, height);
}

function drawContacts(show) {
  const c = plan.stages[state.stage].contacts, i = indexOf(state.stage), p = vectorsOf(c.p, i);
  const slant = 0.018, angle = Math.atan(plan.friction);
  vectorsOf(c.n, i).forEach((n, k) => {
    const pose = { p: p[k], R: frameAlong(n) }, wide = slant * Math.sin(angle);
    show(shaded, { mesh: shapes.cone, model: matrixOf(pose, [wide, wide, slant * Math.cos(angle)]), colour: [...plan.colours.cone, 0.4], flatness: 0.3 });
    show(shaded, { mesh: shapes.rod, model: matrixOf(pose, [0.0006, 0.0006, 0.02]), colour: [...plan.colours.contact, 1], flatness: 0.6 });
    show(shaded, { mesh: shapes.ball, model: matrixOf(pose, [0.0022, 0.0022, 0.0022]), colour: [...plan.colours.contact, 1], flatness: 0.3 });
  });
}

function drawDots(points, view, ratio) {
  gl.useProgram(dots.p);
  dots.set.view(view);
  dots.set.colour([...plan.colours.overlap, 1]);
  dots.set.size((0.0026 * canvas.clientHeight * ratio) / (2 * FOV));
  gl.bindVertexArray(dotBuffer.vao);
  gl.bindBuffer(gl.ARRAY_BUFFER, dotBuffer.data);
  gl.bufferData(gl.ARRAY_BUFFER, new Float32Array(points.flat()), gl.DYNAMIC_DRAW);
  gl.drawArrays(gl.POINTS, 0, points.length);
}

function placeLabels(objects, view, width, height) {
  const box = byId("labels"), wanted = byId("show-labels").checked ? objects : [];
  while (box.children.length > wanted.length) box.lastChild.remove();
  while (box.children.length < wanted.length) box.append(document.createElement("span"));
  const spots = wanted.map(({ p, R }, n) => {
    const at = place({ p, R }, outline[plan.object_meshes[n]].middle), w = view[3] * at[0] + view[7] * at[1] + view[11] * at[2] + view[15];
    const [x, y] = [0, 1].map((i) => (view[i] * at[0] + view[i + 4] * at[1] + view[i + 8] * at[2] + view[i + 12]) / w);
    const label = box.children[n];
    label.textContent = `${n + 1}  ${plan.objects[n].name}`;
    label.style.borderLeftColor = css(plan.objects[n].colour);
    return { label, x: ((x + 1) / 2) * width - label.offsetWidth / 2, y: ((1 - y) / 2) * height - 12, behind: w < 0 };
  });
  spots.sort((a, b) => a.y - b.y).forEach((spot, k) => {
    const high = spot.label.offsetHeight + 4;
    if (k) spot.y = Math.max(spot.y, spots[k - 1].y + high);
    spot.label.style.left = `${clamp(spot.x, 4, Math.max(4, width - spot.label.offsetWidth - 4))}px`;
    spot.label.style.top = `${clamp(spot.y, 4, height - high)}px`;
    spot.label.hidden = spot.behind;
  });
}

// The panel. Text goes in as text, never as markup.

const css = (colour) => `rgb(${colour.map((c) => Math.round(255 * c)).join(" ")})`;
const number = (value, digits) => (value === null ? "-" : value.toFixed(digits));
const lastStage = plan.stages.length - 1;
const COLUMNS = [
  ["#", (i) => i + 1, (i) => String(i + 1), "number"],
  ["Verdict", (i) => rowOf(lastStage, i).verdict, (i) => `${mark(rowOf(lastStage, i))} ${rowOf(lastStage, i).verdict}`],
  ["Opposition", (i) => rowOf(lastStage, i).space, (i) => rowOf(lastStage, i).space],
  ["Quality", (i) => rowOf(lastStage, i).quality, (i) => number(rowOf(lastStage, i).quality, 2), "number"],
  ["Overlap, mm", (i) => rowOf(lastStage, i).penetration_mm, (i) => number(rowOf(lastStage, i).penetration_mm, 2), "number"],
];
const mark = (row) => (row.held ? "\u2713" : row.verdict === "not tried" ? "\u2013" : "\u2717");
const kindOf = (row) => (row.held ? "held" : row.verdict === "not tried" ? "" : "failed");
const order = { column: 0, down: false };
let listed = [];

function element(name, text = "", className = "") {
  const made = document.createElement(name);
  made.textContent = text;
  if (className) made.className = className;
  return made;
}

function fillList() {
  const verdict = byId("filter-verdict").value, space = byId("filter-space").value, value = COLUMNS[order.column][1];
  const compare = (a, b) => (a === b ? 0 : a === null ? 1 : b === null ? -1 : (a < b ? -1 : 1) * (order.down ? -1 : 1));
  listed = plan.sequences.map((_, i) => i)
    .filter((i) => (!verdict || rowOf(lastStage, i).verdict === verdict) && (!space || rowOf(lastStage, i).space === space))
    .sort((a, b) => compare(value(a), value(b)) || a - b);
  byId("rows").replaceChildren(...listed.map((i) => {
    const row = element("tr");
    row.dataset.sequence = i;
    row.append(...COLUMNS.map(([title, , text, kind]) => element("td", text(i), kind || (title === "Verdict" ? kindOf(rowOf(lastStage, i)) : ""))));
    return row;
  }));
  byId("count").textContent = `${listed.length} of ${plan.sequences.length}`;
  [...byId("head").children].forEach((cell, k) => {
    const sorted = k === order.column;
    cell.setAttribute("aria-sort", sorted ? (order.down ? "descending" : "ascending") : "none");
    cell.firstChild.textContent = COLUMNS[k][0] + (sorted ? (order.down ? " \u25be" : " \u25b4") : "");
  });
  markChosen();
}

function markChosen() {
  for (const row of byId("rows").children) row.classList.toggle("chosen", Number(row.dataset.sequence) === state.sequence);
}

function update() {
  const row = rowOf(state.stage), count = plan.stages.length;
  const where = `${state.stage + 1} of ${count}: ${plan.stages[state.stage].object}`;
  byId("stage").value = state.stage;
  byId("phase").value = state.phase;
  byId("stage-text").textContent = where;
  byId("stage").setAttribute("aria-valuetext", where);
  const near = Math.round(state.phase), exact = Math.abs(state.phase - near) < 0.02;
  const between = `${plan.phases[Math.floor(state.phase)]} to ${plan.phases[Math.min(Math.floor(state.phase) + 1, 2)]}`;
  byId("phase-text").textContent = exact ? plan.phases[near] : between;
  byId("phase").setAttribute("aria-valuetext", byId("phase-text").textContent);
  byId("chosen-name").textContent = `#${state.sequence + 1}, ${plan.stages[state.stage].object}: ${row.space}`;
  byId("chosen-text").textContent = `${mark(row)} ${row.text}. Quality ${number(row.quality, 2)}, overlap ${number(row.penetration_mm, 2)} mm.`;
  byId("chosen-text").className = kindOf(row);
  redraw();
}

function choose(sequence) {
  state.sequence = sequence;
  markChosen();
  byId("rows").querySelector(".chosen")?.scrollIntoView({ block: "nearest" });
  measureScene();
  if (!camera.moved) frame();
  update();
}

function setUpPanel() {
  plan.notes.forEach((note) => byId("notes").append(element("p", note)));
  plan.facts.forEach(([name, value]) => byId("facts").append(element("dt", name), element("dd", value)));
  plan.phases.forEach((name) => byId("phase-names").append(element("span", name)));
  const key = (text, colour, kind = "") => {
    const item = element("li", "", kind), patch = element("i");
    patch.style.background = css(colour);
    item.append(patch, text);
    byId("legend").append(item);
  };
  plan.objects.forEach(({ name, colour }, n) => key(`${n + 1} ${name}`, colour));
  ["free", "moves in this stage", "holds already"].forEach((text, k) => key(text, plan.colours.bodies[k]));
  key("contact and normal", plan.colours.contact, "dot contacts");
  key(`friction cone, coefficient ${plan.friction}`, plan.colours.cone, "contacts");
  key("skin inside an object", plan.colours.overlap, "dot overlap");
  const choices = (id, all, values) => byId(id).append(new Option(all, ""), ...[...new Set(values)].sort().map((v) => new Option(v, v)));
  choices("filter-verdict", "all verdicts", plan.sequences.map((_, i) => rowOf(lastStage, i).verdict));
  choices("filter-space", "all spaces", plan.sequences.map((_, i) => rowOf(lastStage, i).space));
  COLUMNS.forEach(([title, , , kind], k) => {
    const cell = element("th", "", kind), button = element("button", title);
    button.type = "button";
    button.addEventListener("click", () => { Object.assign(order, { down: order.column === k && !order.down, column: k }); fillList(); });
    cell.append(button);
    byId("head").append(cell);
  });
  byId("stage").max = lastStage;
  byId("stage").disabled = lastStage === 0;
  byId("stage").addEventListener("input", (e) => { stop(); state.stage = Number(e.target.value); update(); });
  byId("phase").addEventListener("input", (e) => { stop(); state.phase = Number(e.target.value); update(); });
  byId("rows").addEventListener("click", (e) => { const row = e.target.closest("tr"); if (row) { stop(); choose(Number(row.dataset.sequence)); } });
  ["filter-verdict", "filter-space"].forEach((id) => byId(id).addEventListener("change", fillList));
  ["contacts", "overlap", "labels"].forEach((name) => {
    const show = () => { byId("legend").classList.toggle(`with-${name}`, byId(`show-${name}`).checked); redraw(); };
    byId(`show-${name}`).addEventListener("change", show);
    show();
  });
  byId("reset").addEventListener("click", frame);
  byId("play").addEventListener("click", () => (playing ? stop() : play()));
  document.addEventListener("keydown", (e) => {
    const taken = e.target.matches("select, input[type=range]") || e.ctrlKey || e.metaKey || e.altKey;
    const step = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[e.key];
    if (taken || !step) return;
    e.preventDefault();
    stop();
    if (e.key === "ArrowLeft" || e.key === "ArrowRight") { state.stage = clamp(state.stage + step, 0, lastStage); update(); }
    else if (listed.length) choose(listed[clamp(listed.indexOf(state.sequence) + step, 0, listed.length - 1)]);
  });
}

// Animation: every stage goes from its pre-grasp to its squeeze; between stages the hand moves over.

const OVER = 600, CLOSING = 1700, REST = 500;
let playing = null;

function play() {
  const started = performance.now(), one = OVER + CLOSING + REST;
  const tick = (now) => {
    const time = Math.max(now - started, 0), stage = Math.floor(time / one), at = time - stage * one;
    if (stage > lastStage) return stop();
    state.stage = stage;
    state.phase = 2 * clamp((at - OVER) / CLOSING, 0, 1);
    blend = at < OVER ? { from: jointsAt(Math.max(stage - 1, 0), stage ? 2 : 0), share: at / OVER } : null;
    update();
    playing = requestAnimationFrame(tick);
  };
  byId("play").textContent = "Stop";
  playing = requestAnimationFrame(tick);
}

function stop() {
  if (playing) cancelAnimationFrame(playing);
  playing = blend = null;
  byId("play").textContent = "Play";
  redraw();
}

// Mouse and touch: one pointer turns, two move and zoom.

function setUpPointers() {
  const held = new Map();
  const moveBy = (dx, dy) => {
    const { right, above } = axes(), metres = (2 * FOV * camera.distance) / canvas.clientHeight;
    camera.target = add(camera.target, add(scale(right, -dx * metres), scale(above, dy * metres)));
  };
  const zoomBy = (factor) => { camera.distance = clamp(camera.distance * factor, 0.02, 20 * extent.radius); };
  canvas.addEventListener("pointerdown", (e) => { canvas.setPointerCapture(e.pointerId); held.set(e.pointerId, [e.clientX, e.clientY]); canvas.focus({ preventScroll: true }); });
  for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, (e) => held.delete(e.pointerId));
  canvas.addEventListener("pointermove", (e) => {
    const before = held.get(e.pointerId);
    if (!before) return;
    const [dx, dy] = [e.clientX - before[0], e.clientY - before[1]];
    const other = [...held.entries()].find(([id]) => id !== e.pointerId)?.[1];
    if (other) {
      moveBy(dx / 2, dy / 2);
      const apart = (p) => Math.max(Math.hypot(p[0] - other[0], p[1] - other[1]), 1);
      zoomBy(apart(before) / apart([e.clientX, e.clientY]));
    } else if (e.buttons & 6 || e.shiftKey) moveBy(dx, dy);
    else {
      camera.yaw -= dx * 0.008;
      camera.pitch = clamp(camera.pitch + dy * 0.008, -1.5, 1.5);
    }
    camera.moved = true;
    held.set(e.pointerId, [e.clientX, e.clientY]);
    redraw();
  });
  canvas.addEventListener("wheel", (e) => { e.preventDefault(); zoomBy(Math.exp(clamp(e.deltaY, -200, 200) * 0.001)); camera.moved = true; redraw(); }, { passive: false });
  canvas.addEventListener("contextmenu", (e) => e.preventDefault());
  new ResizeObserver(() => (camera.moved ? redraw() : frame())).observe(canvas);
}

function say(text) {
  byId("message").textContent = text;
  byId("message").hidden = false;
}

async function start() {
  setUpPanel();
  fillList();
  await unpack();
  const corners = plan.meshes.map(cornersOf);
  // A hundred points of each surface are enough to frame it.
  outline = corners.map((c) => {
    const step = 6 * Math.max(1, Math.floor(c.length / 600)), points = [], low = [9, 9, 9], high = [-9, -9, -9];
    for (let i = 0; i < c.length; i += 6) {
      for (let k = 0; k < 3; k++) { low[k] = Math.min(low[k], c[i + k]); high[k] = Math.max(high[k], c[i + k]); }
      if (i % step === 0) points.push([c[i], c[i + 1], c[i + 2]]);
    }
    return Object.assign(points, { middle: scale(add(low, high), 0.5) });
  });
  measureScene();
  if (setUpDrawing(corners)) window.fistful.triangles = [...plan.bodies.map((b) => b.mesh), ...plan.object_meshes].reduce((sum, m) => sum + meshes[m].count / 3, 0);
  else say("This browser can not draw in 3D here: WebGL 2 is missing or switched off. Lists and verdicts are still readable.");
  setUpPointers();
  update();
  frame();
  draw();
  window.fistful.ready = true;
}

start().catch((error) => { say(error.message); throw error; });
})();
