// The two places where a decoder's configuration is read from.
#ifndef SLUICE_QUANT_DECODER_CONFIG_SOURCES_H_
#define SLUICE_QUANT_DECODER_CONFIG_SOURCES_H_

#include "quant/checkpoint/checkpoint.h"
#include "quant/decoder/decoder_config.h"
#include "quant/decoder/decoder_family.h"
#include "sluice/error.h"

namespace sluice {

// Each fills in what `config` does not have from the family yet; d_model and the number of layers
// are there.
Status ReadHuggingFaceDecoder(const Checkpoint& checkpoint, const DecoderFamily& family,
                              DecoderConfig& config);
Status ReadGgufDecoder(const Checkpoint& checkpoint, const DecoderFamily& family,
                       DecoderConfig& config);

}  // namespace sluice

#endif  // SLUICE_QUANT_DECODER_CONFIG_SOURCES_H_
