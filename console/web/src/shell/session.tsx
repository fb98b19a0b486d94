/** Sign-in, for platforms that require a token. */
import { useState } from "preact/hooks";
import { Problem, send } from "../data/api";
import { status } from "../data/platform";
import { useValue } from "../data/value";
import { Icon } from "./icons";

export function SignIn() {
  const [token, setToken] = useState("");
  const [error, setError] = useState("");
  const enter = (event: Event): void => {
    event.preventDefault();
    setError("");
    send("POST", "session", { token: token.trim() }).then(
      () => location.reload(),
      (problem: Problem) => setError(problem.message),
    );
  };
  return (
    <main class="sign-in">
      <form onSubmit={enter} class="card card-body stack">
        <h1>
          <img src="/icon.svg" alt="" width="22" height="22" /> candlewright
        </h1>
        <label>
          Token
          <input
            type="password"
            autocomplete="current-password"
            required
            maxLength={200}
            autofocus
            value={token}
            onInput={(event) => setToken(event.currentTarget.value)}
          />
        </label>
        {error && (
          <p class="verdict bad" role="alert">
            {error}
          </p>
        )}
        <button class="primary" type="submit" disabled={token.trim() === ""}>
          Sign in
        </button>
        <p class="muted">
          The platform's operator creates tokens with <code>candlewright keys new NAME --role viewer</code>.
        </p>
      </form>
    </main>
  );
}

export function SignOut() {
  const current = useValue(status);
  if (!current?.signed_in_as) return null;
  const title = `Sign out ${current.signed_in_as} (${current.role})`;
  return (
    <button class="quiet square" type="button" title={title} onClick={() => void send("DELETE", "session").then(() => location.reload())}>
      <Icon name="leave" />
      <span class="unseen">{title}</span>
    </button>
  );
}
