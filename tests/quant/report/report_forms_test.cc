// The three forms of the report: text, JSON, HTML.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <format>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "quant/report/report_html.h"
#include "quant/report/report_json.h"
#include "quant/report/report_markdown.h"
#include "quant/report/report_text.h"
#include "quant/report/verdict.h"
#include "tests/quant/report/synthetic_report.h"

namespace sluice {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
const ReportOrigin kOrigin = {.command = "sluice report model file", .version = "1.2.3"};

size_t Count(const std::string& text, const std::string& what) {
  size_t count = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

TEST(ReportJson, HasEveryFigureUnderItsKey) {
  const ModelReport report = test::SyntheticReport(2);
  const json j = json::parse(ReportJson(report));
  EXPECT_EQ(j["schema"], "sluice.report/1");
  EXPECT_EQ(j["model"], "models/SmolLM2-135M");
  EXPECT_EQ(j["calibration"], json({{"source", "calibration.safetensors"}, {"tokens", 256}}));
  EXPECT_EQ(j["backend"], "highway (AVX3_DL)");
  const json& layer = j["layers"][1];
  EXPECT_EQ(layer["layer"], 1);
  EXPECT_EQ(layer["tokens"], 256);
  EXPECT_EQ(layer["activations"], json({{"input", "block"}, {"hidden", "block"}}));
  EXPECT_EQ(layer["matrices"]["down"]["format"], "qb8w:32");
  EXPECT_EQ(layer["matrices"]["down"]["shape"], json({576, 1536}));
  EXPECT_EQ(layer["matrices"]["gate"]["shape"], json({1536, 576}));
  EXPECT_EQ(layer["matrices"]["up"]["weight_relative_rmse"],
            report.layers[1].matrices[Matrix::kUp]->weight_relative_rmse);
  EXPECT_EQ(layer["output"]["relative_l2"], report.layers[1].output.relative_l2);
  EXPECT_EQ(layer["output"]["worst_token"], 8);
  EXPECT_EQ(layer["attribution"]["hidden_activations"],
            report.layers[1].attribution.hidden_activations);
  EXPECT_EQ(layer["attribution"]["all"], report.layers[1].attribution.all);
  EXPECT_EQ(j["totals"]["ffn_bytes"], report.totals.ffn_bytes);
  EXPECT_EQ(j["warnings"], json::array());
}

TEST(ReportJson, AnUngatedBlockHasNoGate) {
  const json j = json::parse(ReportJson(test::SyntheticReport(1, /*gated=*/false)));
  EXPECT_FALSE(j["layers"][0]["matrices"].contains("gate"));
  EXPECT_FALSE(j["layers"][0]["attribution"].contains("gate"));
  EXPECT_TRUE(j["layers"][0]["attribution"].contains("up"));
}

TEST(ReportJson, WhatIsNotFiniteIsNull) {
  ModelReport report = test::SyntheticReport(1);
  report.layers[0].output.sqnr_db = kInfinity;
  report.layers[0].attribution.matrices[Matrix::kUp] = std::numeric_limits<double>::quiet_NaN();
  const json j = json::parse(ReportJson(report));
  EXPECT_TRUE(j["layers"][0]["output"]["sqnr_db"].is_null());
  EXPECT_TRUE(j["layers"][0]["attribution"]["up"].is_null());
}

TEST(ReportJson, APathNeedNotBeUtf8) {
  ModelReport report = test::SyntheticReport(1);
  report.model = "caf\xE9";
  EXPECT_EQ(json::parse(ReportJson(report))["model"], "caf\uFFFD");
}

TEST(ReportText, HasVerdictTablesAndWarnings) {
  ModelReport report = test::SyntheticReport(3);
  report.warnings = {"layer 2: down is all zero"};
  const std::string text = ReportText(report);
  EXPECT_THAT(text, HasSubstr("models/SmolLM2-135M"));
  EXPECT_THAT(text, HasSubstr("a block's output is"));
  EXPECT_THAT(text, HasSubstr("warning: layer 2: down is all zero"));
  EXPECT_THAT(text, HasSubstr("qb8w:32"));
  EXPECT_THAT(text, Not(HasSubstr("RANDOM")));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 125u) << line;
}

TEST(ReportText, RandomInputsAreLoud) {
  ModelReport report = test::SyntheticReport(1);
  report.calibration_source = "random";
  EXPECT_THAT(ReportText(report), HasSubstr("!! RANDOM INPUTS"));
  EXPECT_THAT(ReportVerdictText(report), HasSubstr("!! RANDOM INPUTS"));
  EXPECT_THAT(ReportHtml(report, kOrigin), HasSubstr("RANDOM INPUTS"));
}

TEST(ReportForms, AQuantizedSourceIsLoud) {
  ModelReport report = test::SyntheticReport(1);
  EXPECT_THAT(ReportText(report) + ReportHtml(report, kOrigin), Not(HasSubstr("QUANTIZED SOURCE")));
  report.source = {.types = {{"Q4_1", 3}}, .quantized = 3, .bytes = 1000000};
  EXPECT_THAT(ReportText(report), HasSubstr("!! QUANTIZED SOURCE"));
  EXPECT_THAT(ReportHtml(report, kOrigin), HasSubstr("QUANTIZED SOURCE"));
  EXPECT_THAT(ReportHtml(report, kOrigin), HasSubstr("1.00 MB in the source"));
  EXPECT_EQ(json::parse(ReportJson(report))["source"],
            json({{"types", {{"Q4_1", 3}}}, {"bytes", 1000000}, {"quantized", 3}}));
}

TEST(ReportHtml, IsOneFileWithoutScriptsOrNetwork) {
  ModelReport report = test::SyntheticReport(30);
  report.calibration_source = "random";
  report.warnings = {"one", "two"};
  const std::string html = ReportHtml(report, kOrigin);
  for (const char* forbidden :
       {"<script", "http:", "https:", "src=", "url(", "@import", "<link", " on", "javascript:"}) {
    if (std::string(forbidden) == " on") {
      EXPECT_FALSE(std::regex_search(html, std::regex("<[^>]* on[a-z]+="))) << "an event handler";
    } else {
      EXPECT_THAT(html, Not(HasSubstr(forbidden)));
    }
  }
  EXPECT_THAT(html, Not(HasSubstr("{{")));
  EXPECT_THAT(html, Not(HasSubstr("}}")));
  EXPECT_THAT(html, HasSubstr("prefers-color-scheme: dark"));
  EXPECT_THAT(html, HasSubstr("width=device-width"));
}

TEST(ReportHtml, EveryTagIsClosed) {
  ModelReport report = test::SyntheticReport(3);
  report.calibration_source = "random";
  report.source = {.types = {{"Q4_1", 9}}, .quantized = 9, .bytes = 1};
  report.warnings = {"one"};
  const std::string html = ReportHtml(report, kOrigin);
  for (const char* tag :
       {"html",   "head",   "style", "body",  "main",   "section",    "div",     "table",  "thead",
        "tbody",  "tr",     "td",    "th",    "p",      "ul",         "li",      "dl",     "dt",
        "dd",     "span",   "i",     "b",     "code",   "pre",        "h1",      "h2",     "h3",
        "header", "footer", "svg",   "title", "figure", "figcaption", "details", "summary"}) {
    const std::string name = tag;
    EXPECT_EQ(Count(html, "<" + name + ">") + Count(html, "<" + name + " "),
              Count(html, "</" + name + ">"))
        << tag;
  }
}

TEST(ReportHtml, WhatComesFromOutsideIsEscaped) {
  const std::string attack = "<script>alert('x')</script>&\"{{cost}}\n";
  ModelReport report = test::SyntheticReport(1);
  report.model = report.file = report.calibration_source = report.cpu = report.backend = attack;
  report.warnings = {attack};
  const std::string html = ReportHtml(report, {.command = attack, .version = attack});
  EXPECT_THAT(html, Not(HasSubstr("<script")));
  EXPECT_THAT(html, HasSubstr("&lt;script&gt;alert(&apos;x&apos;)"));
  EXPECT_THAT(html, HasSubstr("script&gt;&amp;&quot;{{cost}}\\x0a"));  // nor rendered again
}

// An unescaped tag in the template would undo the test above for one more field.
TEST(ReportHtml, TheTemplateEscapesEverything) {
  std::ifstream in(SLUICE_SOURCE_DIR "/quant/report/report.html.mustache");
  std::stringstream text;
  text << in.rdbuf();
  ASSERT_GT(text.str().size(), 1000u);
  EXPECT_THAT(text.str(), Not(HasSubstr("{{{")));
  EXPECT_THAT(text.str(), Not(HasSubstr("{{&")));
}

TEST(ReportHtml, ShowsEveryLayerAndMatrix) {
  const std::string html = ReportHtml(test::SyntheticReport(5), kOrigin);
  EXPECT_EQ(Count(html, "<figure>"), 15u);
  EXPECT_EQ(Count(html, "576 × 1536"), 5u);
  EXPECT_EQ(Count(html, "1536 × 576"), 10u);
  EXPECT_THAT(html, HasSubstr("sluice report model file"));
}

// The classes of the heat-map's cells in the row of `layer`, "everything" first.
std::vector<std::string> HeatClasses(const std::string& html, size_t layer) {
  const size_t table = html.find("<table class=\"heat\">");
  const size_t row = html.find(std::format("<tr><th>{}</th>", layer), table);
  const std::string text = html.substr(row, html.find("</tr>", row) - row);
  std::vector<std::string> classes;
  const std::regex cell("<td class=\"(\\w+)\">");
  for (std::sregex_iterator i(text.begin(), text.end(), cell), end; i != end; ++i) {
    classes.push_back((*i)[1]);
  }
  return classes;
}

TEST(ReportHtml, OneBadLayerDoesNotFlattenTheHeatMap) {
  ModelReport report = test::SyntheticReport(3);
  for (size_t i = 0; i < 3; ++i) {
    Attribution& a = report.layers[i].attribution;
    a.matrices = {{0.02, 0.03, 0.04}};
    a.input_activations = a.hidden_activations = 0.01;
    a.all = i == 0 ? 0.05 : i == 1 ? 0.2 : 8.0;
  }
  const std::string html = ReportHtml(report, kOrigin);
  EXPECT_THAT(HeatClasses(html, 0), ElementsAre("h2", "h1", "h1", "h2", "h0", "h0"));
  EXPECT_EQ(HeatClasses(html, 1)[0], "h4");
  EXPECT_EQ(HeatClasses(html, 2)[0], "h9");
  EXPECT_THAT(html, HasSubstr("<th>layer</th><th>everything</th><th>gate</th>"));
  EXPECT_THAT(html, HasSubstr("1.00 % and less"));
}

TEST(ReportHtml, LayersThatAreAlikeLookAlike) {
  ModelReport report = test::SyntheticReport(2);
  report.layers[0].attribution.all = 0.1;
  report.layers[1].attribution.all = 0.101;
  for (LayerReport& layer : report.layers) {
    layer.attribution.matrices = {{0.1, 0.1, 0.1}};
    layer.attribution.input_activations = layer.attribution.hidden_activations = 0.1;
  }
  const std::string html = ReportHtml(report, kOrigin);
  EXPECT_EQ(HeatClasses(html, 0), HeatClasses(html, 1));
}

// Tables that are wider than a phone say that there is more.
TEST(ReportHtml, TablesThatScrollHaveAShadow) {
  const std::string html = ReportHtml(test::SyntheticReport(1), kOrigin);
  EXPECT_EQ(Count(html, "<table"), Count(html, "<div class=\"scroll\">"));
  EXPECT_THAT(html, HasSubstr(".scroll::after"));
}

TEST(ReportForms, OfOneLayerThereIsNoAverage) {
  const ModelReport one = test::SyntheticReport(1);
  EXPECT_THAT(Judge(one).cost + Judge(one).source, Not(HasSubstr("on average")));
  EXPECT_THAT(ReportHtml(one, kOrigin), Not(HasSubstr("on average")));
  EXPECT_THAT(ReportHtml(one, kOrigin), Not(HasSubstr("mean of the layers")));
  const Verdict two = Judge(test::SyntheticReport(2));
  EXPECT_EQ(Count(two.cost + two.source, "on average"), 2u);
}

TEST(ReportHtml, FiguresThatAreNotFiniteDoNotBreakTheCharts) {
  ModelReport report = test::SyntheticReport(3);
  report.layers[1].output.relative_l2 = kInfinity;
  report.layers[1].attribution.all = kInfinity;
  report.totals.relative_l2_mean = kInfinity;
  report.totals.relative_l2_max = kInfinity;
  const std::string html = ReportHtml(report, kOrigin);
  EXPECT_THAT(html, HasSubstr("class=\"bad\""));
  EXPECT_THAT(html, Not(testing::ContainsRegex("(width|height|left|bottom):-?(nan|inf)")));
  EXPECT_THAT(html, Not(testing::ContainsRegex("(points|x|y|d)=\"[^\"]*(nan|inf)")));
}

ModelReport WithFindings() {
  ModelReport report = test::SyntheticReport(3);
  report.findings = {{.kind = FindingKind::kOutlierWeight,
                      .severity = Severity::kError,
                      .layer = 1,
                      .matrix = Matrix::kDown,
                      .row = 71,
                      .column = 1033,
                      .block = 32,
                      .message = "one of <them> | is *large*"}};
  report.layers[2].super_weight = {.row = 11, .column = 222, .token = 33, .trained = 4.5};
  report.loss = {.source = "text.txt",
                 .tokens = 4096,
                 .context = 512,
                 .fp32_perplexity = 17.25,
                 .file = {.file = "smol.sluice.safetensors",
                          .perplexity = 18.5,
                          .kl = {.mean = 0.0625, .median = 0.03125},
                          .top1_agreement = 0.875,
                          .per_position = {}}};
  return report;
}

TEST(ReportForms, FindingsAreInAllOfThem) {
  const ModelReport report = WithFindings();
  const json finding = json::parse(ReportJson(report))["findings"][0];
  EXPECT_EQ(finding, json({{"kind", "outlier_weight"},
                           {"layer", 1},
                           {"matrix", "down"},
                           {"row", 71},
                           {"column", 1033},
                           {"block", 32},
                           {"token", nullptr},
                           {"severity", "error"},
                           {"message", "one of <them> | is *large*"}}));
  EXPECT_THAT(ReportText(report),
              testing::ContainsRegex("outlier_weight +error +1 +down +71 +1033"));
  const std::string html = ReportHtml(report, kOrigin);
  EXPECT_THAT(html, HasSubstr("<div class=\"finding error\"><b>error: outlier_weight</b>"));
  EXPECT_THAT(html, HasSubstr("layer 1, down, row 71, column 1033, block 32"));
  EXPECT_THAT(html, HasSubstr("layer 2, down [11, 222] = 4.50"));
  const std::string markdown = ReportMarkdown({&report, 1}, kOrigin);
  EXPECT_THAT(markdown,
              HasSubstr("| outlier\\_weight | error | layer 1, down, row 71, column 1033, "
                        "block 32 | one of &lt;them&gt; \\| is \\*large\\* |"));
}

TEST(ReportForms, SwappedMatricesAreLoud) {
  ModelReport report = test::SyntheticReport(4);
  for (const std::string& form :
       {ReportText(report), ReportHtml(report, kOrigin), ReportMarkdown({&report, 1}, kOrigin)}) {
    EXPECT_THAT(form, Not(HasSubstr("SWAPPED")));
  }
  for (const size_t layer : {1, 2}) {
    report.findings.push_back({.kind = FindingKind::kSwappedGateUp,
                               .severity = Severity::kError,
                               .layer = layer,
                               .message = "swapped"});
  }
  const std::string said = "GATE AND UP LOOK SWAPPED in layers 1-2";
  EXPECT_THAT(ReportText(report), HasSubstr("!! " + said));
  EXPECT_THAT(ReportVerdictText(report), HasSubstr("!! " + said));
  EXPECT_THAT(ReportHtml(report, kOrigin), HasSubstr("role=\"alert\"><p>" + said));
  EXPECT_THAT(ReportMarkdown({&report, 1}, kOrigin), HasSubstr("**" + said));
}

// Verdict first, and the model's loss first in it.
TEST(ReportForms, TheModelsLossLeads) {
  const ModelReport report = WithFindings();
  const json loss = json::parse(ReportJson(report))["evaluation"];
  EXPECT_EQ(loss["fp32"]["perplexity"], 17.25);
  EXPECT_EQ(loss["file"]["kl"]["mean"], 0.0625);
  EXPECT_FALSE(loss["file"].contains("per_position"));
  const std::string said = "perplexity goes from 17.25 to 18.50";
  for (const std::string& form :
       {ReportText(report), ReportHtml(report, kOrigin), ReportMarkdown({&report, 1}, kOrigin)}) {
    EXPECT_LT(form.find(said), form.find("output is"));
    EXPECT_THAT(form, Not(HasSubstr("was not measured")));
  }
  const ModelReport without = test::SyntheticReport(2);
  for (const std::string& form : {ReportText(without), ReportHtml(without, kOrigin),
                                  ReportMarkdown({&without, 1}, kOrigin)}) {
    EXPECT_EQ(Count(form, "was not measured"), 1u);
  }
}

TEST(ReportForms, SeveralFilesAreSideBySide) {
  std::vector<ModelReport> reports = {test::SyntheticReport(4), WithFindings()};
  reports[1].file = "other<file>.safetensors";
  const json j = json::parse(ReportJson(reports));
  EXPECT_EQ(j["schema"], "sluice.reports/1");
  ASSERT_EQ(j["reports"].size(), 2u);
  EXPECT_EQ(j["reports"][1], json::parse(ReportJson(reports[1])));
  const std::string html = ReportHtml(reports, kOrigin);
  EXPECT_EQ(Count(html, "<table class=\"heat\">"), 2u);
  EXPECT_THAT(html, HasSubstr("other&lt;file&gt;.safetensors"));
  EXPECT_THAT(html, Not(HasSubstr("<file>")));
  // A curve for each file in one chart; the one that has fewer layers ends earlier.
  const size_t chart = html.find("<div class=\"chart\">");
  const std::string svg = html.substr(chart, html.find("</svg>", chart) - chart);
  EXPECT_EQ(Count(svg, "<polyline"), 2u);
  EXPECT_THAT(ReportMarkdown(reports, kOrigin), HasSubstr("## other&lt;file&gt;.safetensors"));
}

TEST(ReportMarkdown, TablesHaveTheirColumnsInEveryRow) {
  std::vector<ModelReport> reports = {WithFindings(), WithFindings()};
  for (ModelReport& report : reports) report.warnings = {"a | b"};
  std::istringstream lines(ReportMarkdown(reports, kOrigin));
  size_t columns = 0;
  size_t tables = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("|")) {
      columns = 0;
      continue;
    }
    const size_t here = Count(line, "|") - Count(line, "\\|");
    if (columns == 0) ++tables;
    if (columns != 0) {
      EXPECT_EQ(here, columns) << line;
    }
    columns = here;
  }
  EXPECT_EQ(tables, 2u + 2 * 6);
}

TEST(ReportMarkdown, WhatComesFromOutsideIsNoMarkup) {
  const std::string attack = "<img src=x>[a](b)`c`|*d*_e_\n# f";
  ModelReport report = test::SyntheticReport(1);
  report.model = report.file = report.cpu = attack;
  report.warnings = {attack};
  const std::string markdown = ReportMarkdown({&report, 1}, {.command = "sluice", .version = "1"});
  EXPECT_THAT(markdown, Not(HasSubstr("<img")));
  EXPECT_THAT(markdown, Not(HasSubstr("[a](b)")));
  EXPECT_THAT(markdown, Not(HasSubstr("\n# f")));
  EXPECT_THAT(markdown, HasSubstr("\\[a\\](b)\\`c\\`\\|\\*d\\*\\_e\\_"));
}

TEST(ReportHtml, ThirtyLayersAreSmall) {
  const ModelReport report = test::SyntheticReport(30);
  EXPECT_LT(ReportHtml(report, kOrigin).size(), 500u * 1000);
}

TEST(ReportHtml, NoLayersNoCrash) {
  EXPECT_THAT(ReportHtml(test::SyntheticReport(0), kOrigin), HasSubstr("There are no layers."));
  EXPECT_THAT(ReportText(test::SyntheticReport(0)), HasSubstr("There are no layers."));
}

}  // namespace
}  // namespace sluice
