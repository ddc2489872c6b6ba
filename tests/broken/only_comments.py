#!POPCORN leaderboard nvfp4_gemv
#!POPCORN gpu NVIDIA
