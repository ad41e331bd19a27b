#pragma once

namespace kaon {

/// From here on SIGINT, SIGTERM and SIGHUP remove temporary files and folders before they end the program as ever.
/// To be called before other threads are started; signals that are ignored stay so.
void clean_up_on_signals();

}  // namespace kaon
