#include "quant/cli/help.h"

#include <algorithm>
#include <sstream>

namespace sluice {
namespace {

constexpr size_t kWidth = 100;
constexpr size_t kNames = 30;

// Line breaks in `text` stay; others are put where words would pass `width` columns.
std::string Wrap(const std::string& text, size_t width) {
  std::istringstream lines(text);
  std::string out;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    size_t used = 0;
    if (!out.empty()) out += '\n';
    for (std::string word; words >> word;) {
      if (used != 0 && used + 1 + word.size() > width) {
        out += '\n';
        used = 0;
      }
      if (used != 0) out += ' ';
      out += word;
      used += word.size() + (used != 0 ? 1 : 0);
    }
  }
  return out;
}

std::string Entry(const std::string& name, const std::string& description) {
  std::stringstream out;
  CLI::detail::format_help(out, name, Wrap(description, kWidth - kNames), kNames);
  return out.str();
}

// "NAME TYPE [default]", and "..." for what may be repeated.
std::string Names(const CLI::Option* option, bool is_positional) {
  std::string text = option->get_name(is_positional, !is_positional);
  if (option->get_type_size() == 0) return text;  // a flag
  if (!is_positional && !option->get_type_name().empty()) text += " " + option->get_type_name();
  if (!option->get_default_str().empty()) text += " [" + option->get_default_str() + "]";
  return text;
}

}  // namespace

HelpFormatter::HelpFormatter() { column_width(kNames); }

std::string HelpFormatter::make_option(const CLI::Option* option, bool is_positional) const {
  return Entry(Names(option, is_positional), option->get_description());
}

std::string HelpFormatter::make_description(const CLI::App* app) const {
  return Wrap(app->get_description(), kWidth) + "\n\n";
}

// In the list of subcommands, the first sentence is enough.
std::string HelpFormatter::make_subcommand(const CLI::App* app) const {
  const std::string description = app->get_description();
  return Entry(app->get_name(), description.substr(0, description.find('\n')));
}

std::string HelpFormatter::make_usage(const CLI::App* app, std::string name) const {
  std::string usage = "Usage: " + name;
  for (const CLI::Option* option : app->get_options()) {
    if (!option->get_positional()) continue;
    const std::string positional = option->get_name(true, false);
    usage += option->get_required() ? " " + positional : " [" + positional + "]";
  }
  for (const CLI::Option* option : app->get_options()) {
    if (option->get_positional() || !option->get_required()) continue;
    const std::string text = option->get_name();
    usage += " " + text.substr(0, text.find(',')) + " " + option->get_type_name();
  }
  usage += app->get_subcommands({}).empty() ? " [OPTIONS]\n" : " COMMAND [OPTIONS]\n";
  return usage;
}

}  // namespace sluice
