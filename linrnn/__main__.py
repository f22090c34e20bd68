from linrnn.cli import main

main()
