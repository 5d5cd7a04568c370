// The whole public interface.
//
//   sluice::Model model = *sluice::Model::Open("model.sluice.safetensors");
//   sluice::ThreadPool pool = *sluice::ThreadPool::Create(0);
//   sluice::Ffn ffn = *model.Layer(0, {.pool = &pool});
//   sluice::Workspace workspace = *ffn.Plan(/*max_tokens=*/16);
//   ffn.Forward(x, y, workspace);
#ifndef SLUICE_SLUICE_H_
#define SLUICE_SLUICE_H_

#include "sluice/cpu.h"
#include "sluice/error.h"
#include "sluice/ffn.h"
#include "sluice/format.h"
#include "sluice/matrix_view.h"
#include "sluice/model.h"

#endif  // SLUICE_SLUICE_H_
