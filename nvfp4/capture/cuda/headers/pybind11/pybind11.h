#pragma once

#include <Python.h>
#include <slim_torch/module.h>
