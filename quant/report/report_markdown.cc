#include "quant/report/report_markdown.h"

#include <kainjow/mustache.hpp>
#include <string_view>

#include "quant/report/page_data.h"

namespace sluice {

// report.md.mustache, embedded when the program is built.
extern const char kMarkdownTemplate[];

namespace {

// Everything that is markup anywhere in a line. A reference for <, > and &, because HTML in
// Markdown is HTML.
std::string EscapeMarkdown(const std::string& text) {
  constexpr std::string_view kMarkup = "\\`*_{}[]|#~!";
  std::string escaped;
  for (const char c : text) {
    if (c == '<') {
      escaped += "&lt;";
    } else if (c == '>') {
      escaped += "&gt;";
    } else if (c == '&') {
      escaped += "&amp;";
    } else {
      if (kMarkup.contains(c)) escaped += '\\';
      escaped += c;
    }
  }
  return escaped;
}

}  // namespace

std::string ReportMarkdown(std::span<const ModelReport> reports, const ReportOrigin& origin) {
  kainjow::mustache::mustache markdown(kMarkdownTemplate);
  markdown.set_custom_escape(EscapeMarkdown);
  return markdown.render(ReportPage(reports, origin));
}

}  // namespace sluice
