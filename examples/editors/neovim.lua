-- For codecompanion.nvim.
require("codecompanion").setup({
  adapters = {
    acp = {
      delta = function()
        local helpers = require("codecompanion.adapters.acp.helpers")
        return {
          name = "delta",
          formatted_name = "delta",
          type = "acp",
          roles = { llm = "assistant", user = "user" },
          commands = { default = { "delta", "acp", "@coder" } },
          defaults = { mcpServers = {}, timeout = 20000 },
          parameters = {
            protocolVersion = 1,
            clientCapabilities = { fs = { readTextFile = false, writeTextFile = false } },
            clientInfo = { name = "CodeCompanion.nvim", version = "1.0.0" },
          },
          handlers = {
            setup = function() return true end,
            auth = function() return true end,
            form_messages = function(self, messages, capabilities)
              return helpers.form_messages(self, messages, capabilities)
            end,
            on_exit = function() end,
          },
        }
      end,
    },
  },
  strategies = { chat = { adapter = "delta" } },
})
