window.onload = () => {
  window.ui = SwaggerUIBundle({
    url: "/admin/openapi.json",
    dom_id: "#swagger-ui",
    deepLinking: true,
    layout: "StandaloneLayout",
    validatorUrl: "none",
    presets: [SwaggerUIBundle.presets.apis, SwaggerUIStandalonePreset],
    plugins: [SwaggerUIBundle.plugins.DownloadUrl],
  });
};
