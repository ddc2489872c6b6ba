#pragma once

#include <slim_torch/indexing.h>
