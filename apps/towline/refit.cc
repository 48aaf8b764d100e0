#include "app.h"
#include "refit_plan.h"
#include "refit_run.h"
#include "refit_worker.h"
#include "replica.h"
#include "verbs.h"

namespace towline::cli {
namespace {

constexpr PositionalSpec kPositionals[] = {{.name = "what",
                                            .help = "plan, run; run starts processes that are trainer or reader",
                                            .choices = "plan|run|trainer|reader"}};

constexpr FlagSpec kFlags[] = {
    {"scenario", "MODEL:TRAINER->ENGINE", "a built-in model, such as qwen3-235b:fsdp64->dp8ep8"},
    {"checkpoint", "PATH", "instead: a checkpoint's own tensors; with --trainer and --engine"},
    {"trainer", "LAYOUT", "how the trainer has it: fsdp:N, or tp:T,pp:P,ep:E; rep:K for K copies"},
    {"engine", "LAYOUT", "how the engine wants it: tp:T, or dp:D,ep:E"},
    {.name = "head-dim",
     .placeholder = "N",
     .help = "with --checkpoint: width of a head (default: 128, else 64)",
     .kind = OptionKind::kCount,
     .least = "1",
     .most = "65536"},
    {.name = "rank",
     .placeholder = "N",
     .help = "rank of the engine (default: 0)",
     .kind = OptionKind::kCount,
     .most = kRankMax},
    {"all-ranks", "", "plan every rank of the engine: how evenly the trainer's ranks are asked"},
    {"explain", "TENSOR", "how this tensor goes, and what the other ways would cost"},
    {"reads", "FORMS", "what transport and trainer can: plain, strided or packed (default: strided)"},
    {.name = "staging",
     .placeholder = "SIZE",
     .help = "at most this much of a source is staged at once (default: 1GiB)",
     .kind = OptionKind::kBytes,
     .least = "1MiB"},
    {.name = "steps",
     .placeholder = "N",
     .help = "run: how often the weights change (default: 3)",
     .kind = OptionKind::kCount,
     .least = "1",
     .most = "1000"},
    {"kill-source", "", "run: the last trainer rank dies at step 1 and comes back with other memory"},
    {"kill-reader", "", "run: the last engine rank dies at step 1 and comes back"},
    {.name = "nic-gigabits",
     .placeholder = "N",
     .help = "speed of each rank's network card, 10^9 bits/s (default: 400)",
     .kind = OptionKind::kCount,
     .least = "1",
     .most = "100000"},
};

constexpr std::string_view kSettings[] = {"server",    "rpc_deadline", "deadline",
                                          "transport", "window",       "heartbeat_interval"};

Result<void> run_refit(App& app, const Arguments& arguments) {
  const std::string what = arguments.get("what");
  if (what == "plan") return run_refit_plan(app, arguments);
  if (what == "run") return run_refit_run(app, arguments);
  return what == "trainer" ? run_refit_trainer(app, arguments) : run_refit_reader(app, arguments);
}

}  // namespace

const VerbSpec kRefit{.name = "refit",
                      .help = "rehearse how an engine takes a trainer's weights over",
                      .positionals = kPositionals,
                      .flags = kFlags,
                      .settings = kSettings,
                      .run = &run_refit};

}  // namespace towline::cli
