"""The command nvfp4. It stages a folder and runs eval.py in it by the bot's protocol."""
