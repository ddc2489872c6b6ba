#!POPCORN leaderboard nvfp4_gemv
#!POPCORN gpu NVIDIA
# strategy: plain torch

from gemv import gemv


def custom_kernel(data):
    return gemv(data)
