// The threshold explorer: what other bounds would keep, from counts that are exact at every stop of a slider.
const explorer = document.getElementById("try");
if (explorer) {
  explorer.hidden = false;
  const { sliders, own } = JSON.parse(document.getElementById("sliders").textContent);
  const BARS = 70;
  const number = (value) => value.toLocaleString("en");
  const key = (name) => (/^[A-Za-z0-9_-]+$/.test(name) ? name : JSON.stringify(name));

  // never rounded to a full 0 or 100 %
  function share(part, whole) {
    const percent = (100 * part) / whole;
    if (percent > 0 && percent < 0.1) return "< 0.1 %";
    if (percent > 99.9 && percent < 100) return "> 99.9 %";
    return `${percent.toFixed(1)} %`;
  }

  const all = sliders.map((slider, place) => {
    const card = explorer.querySelector(`[data-slider="${place}"]`);
    const [input, output, reset, svg] = ["input", "output", "button", "svg"].map((tag) => card.querySelector(tag));
    const inForce = slider.in_force && { threshold: slider.in_force[0], dropped: slider.in_force[1] };
    const steps = slider.steps.map(([threshold, dropped]) => ({ threshold, dropped }));
    const open = slider.side === "minimum" ? 0 : steps.length - 1;
    let start = open;
    if (inForce) {
      const distance = ({ threshold, dropped }) => [Math.abs(dropped - inForce.dropped), Math.abs(threshold - inForce.threshold)];
      steps.forEach((step, at) => {
        const [one, two] = [distance(step), distance(steps[start])];
        if (one[0] < two[0] || (one[0] === two[0] && one[1] < two[1])) start = at;
      });
    }
    return { ...slider, steps, inForce, open, start, card, input, output, reset, svg, chosen: null };
  });

  // null: no bound
  const bound = (slider) => slider.chosen ?? slider.inForce;
  const dropped = (slider) => bound(slider)?.dropped ?? 0;
  const changed = (slider) => slider.chosen !== null;

  function choose(slider, at) {
    let place = at;
    // a minimum does not pass the maximum of the same score
    const other = all.find((one) => one !== slider && one.name === slider.name);
    const limit = other && bound(other);
    const passes = (step) => limit && (slider.side === "minimum" ? step.threshold > limit.threshold : step.threshold < limit.threshold);
    while (passes(slider.steps[place]) && place !== slider.open) place += slider.side === "minimum" ? -1 : 1;
    slider.input.value = place;
    const step = slider.steps[place];
    const same = slider.inForce ? step.threshold === slider.inForce.threshold : place === slider.open;
    slider.chosen = same ? null : step;
    draw(slider);
    tell();
  }

  function reset(slider) {
    slider.chosen = null;
    slider.input.value = slider.start;
    draw(slider);
  }

  function draw(slider) {
    const at = Number(slider.input.value);
    const { steps, svg, values: count } = slider;
    const heights = [];
    for (let bar = 0; bar < BARS; bar += 1) {
      const [from, to] = [bar, bar + 1].map((edge) => Math.round((edge / BARS) * (steps.length - 1)));
      heights.push([from, to, Math.abs(steps[to].dropped - steps[from].dropped)]);
    }
    const most = Math.max(...heights.map(([, , height]) => height), 1);
    const highest = Math.sqrt(most);
    slider.card.querySelector(".height").textContent = `highest bar: ${number(most)} ${slider.unit}${most === 1 ? "" : "s"}, heights by square root`;
    // numbers alone, none of them text from data
    svg.innerHTML = heights.filter(([, , height]) => height).map(([from, to, value]) => {
      const [left, right] = [from, to].map((step) => (100 * step) / (steps.length - 1));
      const height = Math.max((29 * Math.sqrt(value)) / highest, 0.8);
      const side = (slider.side === "minimum" ? to > at : from < at) ? "in" : "out";
      return `<rect class="${side}" x="${left}" y="${30 - height}" width="${Math.max(right - left - 0.2, 0.3)}" height="${height}"/>`;
    }).join("");
    const value = bound(slider);
    const unit = `${slider.unit}s`;
    const rule = document.createElement("b");
    rule.textContent = value ? `${slider.sign} ${value.threshold}` : "no bound";
    const kept = count - dropped(slider);
    const rest = ` keeps ${share(kept, count)}, drops ${number(dropped(slider))} of ${number(count)} ${unit}`;
    const missing = slider.missing ? `; ${number(slider.missing)} have no score` : "";
    slider.output.replaceChildren(rule, `${rest}${missing}${slider.inForce && !changed(slider) ? " · in force" : ""}`);
    slider.input.setAttribute("aria-valuetext", slider.output.textContent);
    slider.card.classList.toggle("changed", changed(slider));
    slider.reset.hidden = !changed(slider);
  }

  function tell() {
    const moved = all.filter(changed);
    const plain = moved.filter((slider) => !slider.setting.startsWith("own."));
    const lines = plain.length ? ["[selection]", ...plain.map((slider) => `${slider.setting} = ${slider.chosen.threshold}`)] : [];
    const side = (slider) => (slider.side === "minimum" ? "min" : "max");
    const bounds = structuredClone(own);
    for (const slider of moved.filter((one) => one.setting.startsWith("own."))) {
      (bounds[slider.name] ??= {})[side(slider)] = slider.chosen.threshold;
    }
    const ownMoved = [...new Set(moved.filter((slider) => slider.setting.startsWith("own.")).map((slider) => slider.name))];
    for (const name of ownMoved) {
      lines.push(`[selection.own.${key(name)}]`, ...Object.entries(bounds[name]).map(([one, value]) => `${one} = ${JSON.stringify(value)}`));
    }
    document.getElementById("lines").textContent = lines.join("\n") || "# nothing was changed";
    const words = plain.map((slider) => `${slider.setting}=${slider.chosen.threshold}`);
    if (ownMoved.length) {
      const inline = Object.entries(bounds).map(([name, ends]) => (
        `${key(name)} = { ${Object.entries(ends).map(([one, value]) => `${one} = ${JSON.stringify(value)}`).join(", ")} }`
      ));
      words.push(`'own={ ${inline.join(", ").replaceAll("'", "'\\''")} }'`);
    }
    document.getElementById("command").textContent = words.length ? `interleaved what-if ${words.join(" ")}` : "# nothing was changed";
    document.getElementById("together").textContent = ["sample", "document", "image", "text"].map(most).filter(Boolean).join(" ");
  }

  // Of what one filter drops alone, nothing is kept by all of them together.
  function most(unit) {
    const ofUnit = all.filter((slider) => slider.unit === unit);
    if (!ofUnit.length) return "";
    const total = Math.max(...ofUnit.map((slider) => slider.values + slider.missing));
    const byFilter = Map.groupBy ? [...Map.groupBy(ofUnit, (slider) => slider.name).values()] : ofUnit.map((slider) => [slider]);
    const lost = Math.max(...byFilter.map((group) => group.reduce((sum, slider) => sum + dropped(slider), 0)));
    return `At most ${share(total - lost, total)} of ${number(total)} ${unit}s pass all of these.`;
  }

  for (const slider of all) {
    slider.input.addEventListener("input", () => choose(slider, Number(slider.input.value)));
    slider.reset.addEventListener("click", () => { reset(slider); tell(); });
    reset(slider);
  }
  document.getElementById("reset").addEventListener("click", () => { all.forEach(reset); tell(); });
  document.getElementById("copy").addEventListener("click", async ({ target }) => {
    const lines = document.getElementById("lines");
    getSelection().selectAllChildren(lines);
    try {
      await navigator.clipboard.writeText(lines.textContent);
      target.textContent = "Copied";
    } catch {
      target.textContent = "Selected: press Ctrl-C"; // where the browser gives no access to the clipboard
    }
    setTimeout(() => { target.textContent = "Copy the lines"; }, 2000);
  });
  tell();
}
