// Help that fits a terminal.
#ifndef SLUICE_QUANT_CLI_HELP_H_
#define SLUICE_QUANT_CLI_HELP_H_

#include <CLI/CLI.hpp>
#include <string>

namespace sluice {

// CLI11's layout with descriptions wrapped at 100 columns, and a usage line that names the required
// options.
class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter();
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
  std::string make_description(const CLI::App* app) const override;
  std::string make_subcommand(const CLI::App* app) const override;
  std::string make_usage(const CLI::App* app, std::string name) const override;
};

}  // namespace sluice

#endif  // SLUICE_QUANT_CLI_HELP_H_
