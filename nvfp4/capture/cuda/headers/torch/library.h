#pragma once

#include <slim_torch/library.h>
