/** Shows a kernel's widget as VS Code's Jupyter extension does: its own widget manager, anywidget by RequireJS. */
import { ServerConnection } from "@jupyterlab/services";
import { KernelConnection } from "@jupyterlab/services/lib/kernel/default";
import { activate } from "@vscode/jupyter-ipywidgets8";

export async function show(modelId, element) {
  activate();
  window.vscIPyWidgets8.load();
  window.requirejs.config({ paths: { anywidget: "/anywidget" } });
  const baseUrl = `${location.origin}/`;
  const serverSettings = ServerConnection.makeSettings({ baseUrl, wsUrl: baseUrl.replace(/^http/, "ws") });
  const kernel = new KernelConnection({ model: { id: "kernel", name: "python3" }, serverSettings });
  const scripts = {
    widgetsRegisteredInRequireJs: new Set(["anywidget"]),
    loadWidgetScript: async () => {},
    successHandler: () => {},
    errorHandler: (...error) => console.error(...error),
  };
  const manager = new window.vscIPyWidgets.WidgetManager(kernel, element, scripts, () => {});
  await kernel.info;
  await manager._loadFromKernel();
  const view = await manager.create_view(await manager.get_model(modelId), { el: element });
  await manager.display_view({}, view, { node: element });
}
