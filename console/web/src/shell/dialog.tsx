/** A dialog with a title; Escape and a click outside it also close it. */
import { useEffect, useState } from "preact/hooks";
import { Icon } from "./icons";

export function Dialog(props: { title: string; close: () => void; children: preact.ComponentChildren }) {
  const [element, setElement] = useState<HTMLDialogElement | null>(null);
  useEffect(() => {
    if (element && !element.open) element.showModal();
  }, [element]);
  return (
    <dialog
      ref={setElement}
      aria-label={props.title}
      onClose={props.close}
      onClick={(event) => event.target === element && element?.close()}
    >
      <div class="dialog">
        <h2>{props.title}</h2>
        <button class="quiet square corner" type="button" onClick={() => element?.close()}>
          <Icon name="close" />
          <span class="unseen">Close</span>
        </button>
        {props.children}
      </div>
    </dialog>
  );
}
