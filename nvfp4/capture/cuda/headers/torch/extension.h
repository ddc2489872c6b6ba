#pragma once

#include <Python.h>

#include <torch/all.h>
#include <torch/python.h>
