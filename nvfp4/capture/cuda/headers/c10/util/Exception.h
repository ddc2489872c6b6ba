#pragma once

#include <slim_torch/exception.h>
