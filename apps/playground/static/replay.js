// What has happened, once more: played, or moved through with a slider.

export class Replay {
  #box;
  #button;
  #slider;
  #output;
  #format;
  #draw = () => {};
  #playing = 0;

  /** `format` writes seconds. The box has a button, a slider and an output. */
  constructor(box, format) {
    this.#box = box;
    this.#format = format;
    [this.#button, this.#slider, this.#output] = box.children;
    this.#button.addEventListener("click", () => this.#play());
    this.#slider.addEventListener("input", () => {
      this.#stop();
      this.#show(this.#slider.valueAsNumber);
    });
  }

  /** From now on `draw` shows a moment, in seconds; the last one is shown already. */
  offer(length, draw) {
    this.#draw = draw;
    Object.assign(this.#slider, { min: 0, max: length, step: length / 200, value: length });
    this.#write(length);
    this.#box.hidden = false;
  }

  /** There is nothing to replay. */
  end() {
    this.#stop();
    this.#box.hidden = true;
  }

  #play() {
    this.#stop();
    const length = Number(this.#slider.max), began = performance.now();
    const next = (now) => {
      const seconds = Math.min((now - began) / 1000, length);
      this.#slider.value = seconds;
      this.#show(seconds);
      if (seconds < length) this.#playing = requestAnimationFrame(next);
    };
    this.#playing = requestAnimationFrame(next);
  }

  #stop() {
    cancelAnimationFrame(this.#playing);
  }

  #show(seconds) {
    const isLast = seconds >= this.#slider.max - this.#slider.step; // a slider rounds
    this.#draw(isLast ? Infinity : seconds);
    this.#write(seconds);
  }

  #write(seconds) {
    this.#output.textContent = this.#format(seconds);
    this.#slider.setAttribute("aria-valuetext", this.#output.textContent);
  }
}
