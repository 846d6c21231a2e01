// Accuracies of a sample of images, with 95 % intervals, as merging/images/benchmarks/metrics.py defines them.
const Z = 1.959963984540054;
const FEWEST = 4; // images of a task, or all that it has, whose accuracy is shown

/** The Wilson interval of a proportion. */
function wilson({ right, n }) {
  const share = right / n, center = (share + Z * Z / (2 * n)) / (1 + Z * Z / n);
  const half = Z / (1 + Z * Z / n) * Math.sqrt(share * (1 - share) / n + Z * Z / (4 * n * n));
  return { mean: share, low: Math.max(0, center - half), high: Math.min(1, center + half), n };
}

/** The mean of the tasks' accuracies, whose variances add, with two successes and two failures more in each. */
function average(tasks) {
  if (!tasks.length || tasks.some(({ n }) => n === 0)) return null;
  const variance = tasks.reduce((sum, { right, n }) => {
    const smooth = (right + 2) / (n + 4);
    return sum + smooth * (1 - smooth) / (n + 4);
  }, 0);
  const mean = tasks.reduce((sum, { right, n }) => sum + right / n, 0) / tasks.length;
  const half = Z * Math.sqrt(variance) / tasks.length;
  const n = tasks.reduce((sum, one) => sum + one.n, 0);
  return { mean, low: Math.max(0, mean - half), high: Math.min(1, mean + half), n };
}

/** The numbers of every meter, {mean, low, high, n} or null without images, of a record of {right, n} by task. */
export function measure(tasks, record) {
  if (!record) return {};
  const rows = {};
  tasks.forEach(({ key, labels }, t) => {
    const one = record.tasks[t], fewest = Math.min(FEWEST, labels.length);
    rows[`t.${key}`] = one.n >= fewest ? wilson(one) : null;
  });
  rows.in = average(record.tasks.filter((_, t) => tasks[t].has_expert));
  rows.out = average(record.tasks.filter((_, t) => !tasks[t].has_expert));
  const total = rows.in && rows.out ? rows.in.mean + rows.out.mean : 0;
  const n = rows.in && rows.out ? rows.in.n + rows.out.n : 0;
  rows.h = n ? { mean: total ? 2 * rows.in.mean * rows.out.mean / total : 0, n } : null;
  return rows;
}
