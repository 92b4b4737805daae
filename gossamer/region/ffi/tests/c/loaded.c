/* loaded: a library whose constructor asks for a move of the thread that loads it. */
#define _GNU_SOURCE
#include "gossamer_region.h"

int loaded_asked = -1;

__attribute__((constructor)) static void ask(void) { loaded_asked = gsm_thread_move(1 - gsm_thread_machine()); }
