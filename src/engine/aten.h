#pragma once
// The ATen headers, precompiled for this layer's sources. Include it in .cpp files and engine-internal headers only.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
